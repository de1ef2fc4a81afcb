#include "fed/config/privacy_section.h"

#include "base/plain/text.h"

namespace evenkeel::fed {

void ClipAdaptation::resolve(const config::Table& table) const {
  const ClipAdaptation defaults;
  table.check(target >= 0 && target < 1, "target", target, "0, or above 0, below 1");
  table.check_above_zero("rate", rate);
  table.check_from_zero("indicator_noise", indicator_noise);
  table.check(is_on() || rate == defaults.rate, "rate", rate, "with target above 0 only");
  table.check(is_on() || indicator_noise == 0, "indicator_noise", indicator_noise, "0 where target is 0");
}

void PrivacySection::resolve(const config::Table& table) const {
  if (unit == PrivacyUnit::kOff) return check_unused(table);
  check_amounts(table);
  if (protects_clients()) {
    table.check(lot == 0, "lot", lot, "0 where unit is client");
    table.check(epsilon > 0 || noise_multiplier > 0, "epsilon", epsilon,
                "above 0, or 0 where noise_multiplier is above 0");
    return check_of_clients(table);
  }
  table.check((epsilon > 0) != (noise_multiplier > 0), "epsilon", epsilon,
              "above 0, or 0 where noise_multiplier is above 0");
  table.check_integer("lot", lot, 0, limits::kRows);
  check_no_clients(table, "with unit client only");
}

void PrivacySection::check_amounts(const config::Table& table) const {
  table.check(epsilon >= 0 && epsilon <= privacy::kMostEpsilon, "epsilon", epsilon, "0 to 1000000");
  table.check(
      noise_multiplier == 0 || (noise_multiplier >= privacy::kLeastNoise && noise_multiplier <= privacy::kMostNoise),
      "noise_multiplier", noise_multiplier, "0, or 0.01 to 1000");
  table.check(delta >= privacy::kLeastDelta && delta < 1, "delta", delta, "above 0, below 1");
  table.check_above_zero("clip", clip);
}

void PrivacySection::check_of_clients(const config::Table& table) const {
  const bool weighted = weights == SumWeights::kExamples;
  table.check(!weighted || public_sizes, "weights", "\"examples\"", "uniform, where public_sizes is false");
  table.check(weighted ? weight_cap >= 1 : weight_cap == 0, "weight_cap", weight_cap,
              weighted ? "1 or more, where weights is examples" : "0, where weights is uniform");
  table.check_integer("weight_cap", weight_cap, 0, limits::kRows);
  table.check_integer("noise_cohort", noise_cohort, 0, limits::kRows);
  table.check(noise_cohort == 0 || sampling == PrivacySampling::kPoisson, "noise_cohort", noise_cohort,
              "0, or with sampling poisson");
  table.check(noise_cohort == 0 || !adapt.is_on(), "noise_cohort", noise_cohort, "0, where adapt.target is above 0");
  table.check(noise_cohort == 0 || continues.empty(), "continues", "given", "empty, where noise_cohort is above 0");
}

void PrivacySection::check_unused(const config::Table& table) const {
  constexpr auto kUnset = "0 where unit is off";
  table.check(epsilon == 0, "epsilon", epsilon, kUnset);
  table.check(delta == 0, "delta", delta, kUnset);
  table.check(noise_multiplier == 0, "noise_multiplier", noise_multiplier, kUnset);
  table.check(clip == 0, "clip", clip, kUnset);
  table.check(lot == 0, "lot", lot, kUnset);
  check_no_clients(table, "with unit client only");
}

void PrivacySection::check_no_clients(const config::Table& table, std::string_view when) const {
  table.check(sampling == PrivacySampling::kAll, "sampling", concat('"', config::name_of(sampling), '"'), when);
  table.check(weights == SumWeights::kUniform, "weights", "\"examples\"", when);
  table.check(weight_cap == 0, "weight_cap", weight_cap, when);
  table.check(!public_sizes, "public_sizes", "true", when);
  table.check(noise == PrivacyNoise::kSecret, "noise", "\"seeded\"", when);
  table.check(noise_cohort == 0, "noise_cohort", noise_cohort, when);
  table.check(continues.empty(), "continues", "given", when);
  table.check(!adapt.is_on(), "adapt.target", adapt.target, when);
}

}  // namespace evenkeel::fed
