/// \file  Writes the differences between compared runs as lines of text.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comparison/differences.h"

namespace evenkeel::report {

inline constexpr std::string_view kNotAlike =
    "NOT ALIKE: the runs differ in more than their methods, and so may their figures";

/// Returns one line per difference: "threads: 1 (a); 2 (b)".
std::vector<std::string> difference_lines(std::span<const comparison::Difference> differences);
/// Formats the differences as a warning above tables. Empty if there is no difference.
std::string differences_text(std::span<const comparison::Difference> differences);

}  // namespace evenkeel::report
