/// \file  The parts of report.html, as text inside the program. Made at configure time from src/report/page.* and from
/// chart.js as Debian packages it (src/CMakeLists.txt).
#pragma once

#include <string_view>

namespace evenkeel::assets {

std::string_view page_html();
std::string_view page_css();
std::string_view page_js();
std::string_view chart_js();

}  // namespace evenkeel::assets
