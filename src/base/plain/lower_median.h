/// \file  Computes the median that robust rules compare updates with.
#pragma once

#include <vector>

namespace evenkeel {

/// Returns the median; of an even number of values the smaller one of the two in the middle. REQUIRES at least one
/// value, and no NaN
double lower_median(std::vector<double> values);

}  // namespace evenkeel
