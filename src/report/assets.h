/// \file  Returns the parts of report.html as text compiled into the program. They are generated at configure time from
/// src/report/page.* and Debian's chart.js (src/CMakeLists.txt).
#pragma once

#include <string_view>

namespace evenkeel::assets {

std::string_view page_html();
std::string_view page_css();
std::string_view page_js();
std::string_view chart_js();

}  // namespace evenkeel::assets
