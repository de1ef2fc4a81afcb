/// \file  Returns the parts of report.html as text compiled into the program. They are generated at configure time from
/// src/report/page/ (src/CMakeLists.txt).
#pragma once

#include <string_view>

namespace evenkeel::report::assets {

std::string_view page_html();
std::string_view page_css();
std::string_view page_data_js();        ///< the data of the page; numbers as text
std::string_view page_figure_js();      ///< captions, legends, downloads, tables
std::string_view page_charts_js();      ///< lines and differences with intervals, as SVG
std::string_view page_maps_js();        ///< heat maps and scatter plots, as SVG
std::string_view page_comparison_js();  ///< the section that compares arms by budget
std::string_view page_progress_js();    ///< the sections of quantities over rounds
std::string_view page_clients_js();     ///< the section of clients
std::string_view page_experts_js();     ///< the section of experts
std::string_view page_costs_js();       ///< the section of costs
std::string_view page_sections_js();    ///< the other sections, and the order in which all are drawn

}  // namespace evenkeel::report::assets
