/// \file  Combines tensors value by value, after sorting the values of all clients.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "methods/combining_rule.h"

namespace evenkeel::methods {

/// A value of one client, and the client's weight p_c.
using WeightedValue = std::pair<double, double>;

/// Calls `combine` for every value of the tensors, with the clients' values in ascending order; equal values are in the
/// order of their weights. Blocks of values run on all threads.
/// \return the results, with the shape of the parts, in float64 if they are float64, otherwise in float32
/// \throws as CombiningRule::combine()
/// Memory: the result, and a block of 4096 values per client and thread.
at::Tensor by_sorted_values(const Parts& parts, const std::function<double(std::span<const WeightedValue>)>& combine);

}  // namespace evenkeel::methods
