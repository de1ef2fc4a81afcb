/// \file  Renyi divergences of sums with Gaussian noise (Mironov 2017, "Renyi differential privacy"; Mironov, Talwar
/// and Zhang 2019, "Renyi differential privacy of the sampled Gaussian mechanism"). For the discrete Gaussian they hold
/// too, as upper bounds (Canonne, Kamath and Steinke 2020), with sampling at integer orders only.
#pragma once

#include <span>

#include "privacy/event.h"

namespace evenkeel::privacy {

/// Selects the orders at which the divergence of a sampled event is computed.
enum class Orders {
  kEnforced,  ///< integer orders; the divergence is infinite at others. What a budget is checked with
  kAll,       ///< fractional orders too: an upper bound for the continuous Gaussian, to compare with other accountants
};

/// Returns the orders of every account: 1.1, 1.2, ..., 10.9, 11, 12, ..., 63, 128, 256, 512, 1024.
std::span<const double> renyi_orders();

/// Returns the Renyi divergence of one event at an order above 1, at least 0; infinite where it is not known. Pure.
/// REQUIRES an event that check_event() allows.
double renyi_divergence(const Event& event, double order, Orders orders = Orders::kEnforced);

}  // namespace evenkeel::privacy
