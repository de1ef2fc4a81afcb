/// \file  Makes intervals for measures of gradient bias (fed/run/gradient_bias.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comparison/statistics.h"
#include "fed/run/gradient_bias.h"

namespace evenkeel::comparison {

/// A measure, and its interval if there is one.
struct BiasEstimate {
  std::optional<double> value{};  ///< of one run, or the mean over runs; nothing if a run has none
  std::optional<Interval> interval{};
};

/// The measures of one gradient, layer and K, in the order of train::kBiasMeasures.
struct BiasRow {
  fed::GradientOf of = fed::GradientOf::kAllRows;
  std::string layer{};
  int64_t top_k = 0;
  std::vector<BiasEstimate> measures{};
};

/// Estimates every measure with a 95 % interval. For one run, the interval is a jackknife over blocks of its rows. For
/// several runs, it is the t-interval of the runs' values.
/// \param runs  one or more
/// \throws kConfig when the runs differ in layers or numbers of experts per token
std::vector<BiasRow> bias_rows(std::span<const std::vector<fed::GradientBias>> runs);

/// Returns value +- t(0.975, n - 1) times the jackknife's standard error, or nothing for fewer than two estimates.
/// \param left_out  the n estimates that leave one of n blocks out
std::optional<Interval> jackknife_interval(double value, std::span<const double> left_out);

}  // namespace evenkeel::comparison
