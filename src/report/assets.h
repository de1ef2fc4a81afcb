/// \file  Returns the parts of report.html as text compiled into the program. They are generated at configure time from
/// src/report/page/ (src/CMakeLists.txt).
#pragma once

#include <string_view>

namespace evenkeel::report::assets {

std::string_view page_html();
std::string_view page_css();
std::string_view page_data_js();      ///< grouping of runs; means and confidence intervals over seeds
std::string_view page_figure_js();    ///< captions, legends, downloads, tables
std::string_view page_charts_js();    ///< kinds of charts, as SVG
std::string_view page_costs_js();     ///< the section of costs
std::string_view page_sections_js();  ///< sections of the page

}  // namespace evenkeel::report::assets
