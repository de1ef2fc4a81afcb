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
  table.check(hides_uploads() || reports, "reports", "false", kUnused);
  table.check(hides_uploads() || threshold == 0, "threshold", threshold, kUnused);
  table.check(colluders >= 0, "colluders", colluders, "0 or more");
}

void check_nodes(const SecureAggregationSection& section) {
  EK_CHECK(section.mode != SecureMode::kSums, kConfig,
           "secure_aggregation.mode is \"sums\", allowed: off or masks, "
           "where the clients are nodes: without masks their server would see each upload");
}

}  // namespace evenkeel::fed
