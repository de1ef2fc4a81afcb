#include "host/check_setup.h"

#include <algorithm>
#include <string>

#include "base/plain/error.h"

namespace evenkeel::host {
namespace {

void check_factors(const std::string& site, const lora::LoraFactors& factors, bool trains_core, std::string_view who) {
  const auto* allowed = trains_core ? "a, b and core, since trainable is \"core\"" : "a and b";
  for (const auto& factor : lora::kFactors) {
    const bool is_needed = factor.tensor != lora::kFactorCore.tensor || trains_core;
    EK_CHECK(!is_needed || (factors.*factor.tensor).defined(), kConfig, who, ": adapters.", site, ".", factor.name,
             " is None, allowed: arrays as ", allowed);
  }
}

/// Returns whether the loss depends on a trained tensor of the router.
bool trains_router(const methods::LocalSetup& setup) {
  const auto& router = setup.router;
  return std::ranges::any_of(setup.extra_trainables, [&](const auto& entry) {
    const auto is_trained = [&](const auto& phi) { return phi.second.is_same(entry.second); };
    return router.output_scale.is_same(entry.second) ||
           (router.num_candidates > 0 && std::ranges::any_of(router.modulation, is_trained));
  });
}

}  // namespace

void check_setup(const methods::LocalSetup& setup, bool trains, std::string_view who) {
  const bool trains_core = trains && setup.trainable == methods::Trainable::kCore;
  for (const auto& [site, factors] : setup.adapters) check_factors(site, factors, trains_core, who);
  for (const auto& [name, tensor] : setup.extra_trainables)
    EK_CHECK(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble, kConfig, who,
             ": extra_trainables.", name, " is ", at::toString(tensor.scalar_type()), ", allowed: float32, float64");
  EK_CHECK(!trains || !setup.adapters.empty() || trains_router(setup), kConfig, who,
           ": adapters is empty, allowed: one site or more, or a trained tensor of the router");
}

}  // namespace evenkeel::host
