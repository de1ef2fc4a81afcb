#include "fed/config/secure_aggregation.h"

#include "base/plain/error.h"

namespace evenkeel::fed {

void SecureAggregationSection::resolve(const config::Table& table) const {
  table.check(bits == 16 || bits == 32 || bits == 64, "bits", bits, "16, 32, 64");
  table.check_from_zero("range", range);
  table.check(threshold == 0 || threshold >= kFewest, "threshold", threshold, concat("0, or ", kFewest, " or more"));
  const SecureAggregationSection defaults;
  constexpr std::string_view kUnused = "with secure_aggregation.mode sums or masks only";
  table.check(hides_uploads() || bits == defaults.bits, "bits", bits, kUnused);
  table.check(hides_uploads() || range == 0, "range", range, kUnused);
  table.check(hides_uploads() || weights == defaults.weights, "weights", "\"uniform\"", kUnused);
  table.check(mode == SecureMode::kMasks || threshold == 0, "threshold", threshold,
              "with secure_aggregation.mode masks only");
}

void check_nodes(const SecureAggregationSection& section) {
  EK_CHECK(!section.hides_uploads(), kConfig, "secure_aggregation.mode is \"", config::name_of(section.mode),
           "\", allowed: off, where the clients are nodes: only evenkeel train computes with hidden uploads");
}

}  // namespace evenkeel::fed
