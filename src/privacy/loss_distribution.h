/// \file  Computes epsilon from the privacy loss distribution, on a grid, with the pessimistic rounding of Doroshenko
/// et al. 2022 ("Connect the dots"). This epsilon is 5 to 15 % below the Renyi accountant's. It describes the
/// continuous Gaussian, so it is shown beside the enforced epsilon, and no budget is checked with it.
#pragma once

#include <optional>
#include <span>

#include "privacy/event.h"

namespace evenkeel::privacy {

/// Returns the epsilon of all releases together at a delta. Without sampled events it is the exact epsilon of the
/// Gaussian (Balle and Wang 2018).
/// \return nothing when the distribution needs more than 2^24 grid points
/// Cost: up to a second for thousands of releases.
std::optional<double> loss_distribution_epsilon(std::span<const Releases> releases, double delta);

}  // namespace evenkeel::privacy
