/// \file  Declares the rules of methods/combining_rule.h one by one. Private to make_rule() and its tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "methods/combining_rule.h"

namespace evenkeel::methods {

/// Per value: sorts theta_c, leaves out the `trimmed` smallest and largest, and returns sum p_c theta_c / sum p_c over
/// the rest. With trimmed = 0 this is the weighted mean. Source: Yin et al., Byzantine-Robust Distributed Learning,
/// ICML 2018, with equal weights. combine() throws kData unless there are more than 2 `trimmed` values.
std::unique_ptr<CombiningRule> trimmed_mean_rule(int64_t trimmed);

/// Per value: the median of theta_c; of an even number, the mean of the two in the middle. Source: Yin et al. 2018.
std::unique_ptr<CombiningRule> median_rule();

/// Returns before + sum_c p_c s_c (theta_c - before) with s_c = min(1, m / |update_c|), where |update_c| is the norm
/// over all factors and m the lower median of these norms. Source: norm clipping as in Sun et al., Can You Really
/// Backdoor Federated Learning?, 2019, with the round's median as the bound.
/// \param norms  |update_c| of every client, in the order of Parts
std::unique_ptr<CombiningRule> clipped_mean_rule(std::span<const double> norms);

/// Returns values[chosen]. Source: Blanchard et al., Machine Learning with Adversaries, NeurIPS 2017.
std::unique_ptr<CombiningRule> krum_rule(size_t chosen);
/// Returns the index of the client with the smallest sum of squared distances to the n - f - 2 clients closest to it,
/// f = `byzantine`; in a tie the smallest index.
/// \param distances  [n][n] squared distances between uploads. REQUIRES n - f - 2 >= 1
size_t krum_choice(const std::vector<std::vector<double>>& distances, int64_t byzantine);

}  // namespace evenkeel::methods
