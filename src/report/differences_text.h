/// \file  Formats the differences between compared runs as text.
#pragma once

#include <span>
#include <string>

#include "comparison/differences.h"

namespace evenkeel::report {

/// Formats the differences as a title and one line each; empty if there are none.
std::string differences_text(std::span<const records::RunRecords> runs);

}  // namespace evenkeel::report
