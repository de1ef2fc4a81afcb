// The rules of [secure_aggregation] that concern other sections.
#include "fed/config/experiment_config.h"
#include "fed/config/sampling.h"
#include "secure/ring.h"

namespace evenkeel::fed {

void ExperimentConfig::check_secure_aggregation(const config::Table& table) const {
  const auto& secure = secure_aggregation;
  const auto of_secure = table.table("secure_aggregation");
  const bool adds_noise = secure.hides_uploads() && privacy.protects_clients();
  of_secure.check(adds_noise || secure.mode == SecureMode::kMasks || secure.colluders == 0, "colluders",
                  secure.colluders, "0, except with mode masks, or with mode sums and privacy.unit client");
  of_secure.check(adds_noise || secure.mode == SecureMode::kMasks || secure.threshold == 0, "threshold",
                  secure.threshold, "0, except with mode masks, or with privacy.unit client");
  if (!secure.hides_uploads()) return;
  of_secure.check(!adds_noise || !secure.reports, "reports", "true",
                  "false, with privacy.unit client, whose clients withhold what is summed");
  const auto mode = concat('"', config::name_of(secure.mode), '"');
  methods::check_from_sums(method.entry());
  method.make()->check_sums();
  of_secure.check(
      aggregation.rule == methods::AggregationRule::kMean, "mode", mode,
      concat("off, with aggregation.rule ", config::name_of(aggregation.rule), ", which compares single uploads"));
  of_secure.check(!clients.bound_simulated && clients.update_norm == 0, "mode", mode,
                  "off, with clients.bound_simulated or clients.update_norm, which measure single uploads");
  of_secure.check(secure.range > 0 || adds_noise || train.optimizer.name == train::OptimizerName::kAdamW, "range",
                  secure.range, "above 0, where train.optimizer.name is not adamw, whose steps have a known size");
  const int64_t drawn = drawn_clients(clients.count, clients.participation);
  of_secure.check(drawn <= secure::kMostMembers, "mode", mode,
                  concat("off, with ", drawn, " clients drawn per round; otherwise up to ", secure::kMostMembers));
  if (secure.mode != SecureMode::kMasks && !adds_noise) return;
  const int64_t fewest = clients.fewest_drawn();
  of_secure.check(fewest >= SecureAggregationSection::kFewest, "mode", mode,
                  concat("off", adds_noise ? "" : " or sums", ", with ", fewest, " clients drawn per round; ",
                         config::name_of(secure.mode), adds_noise ? " with privacy of clients" : "", " need ",
                         SecureAggregationSection::kFewest, " or more"));
  of_secure.check(
      secure.threshold == 0 || (secure.threshold_of(drawn) == secure.threshold && secure.threshold <= fewest),
      "threshold", secure.threshold,
      concat("0, or ", secure.least_threshold(drawn), " .. ", fewest,
             ", more than half of the clients drawn per round"));
  of_secure.check(secure.threshold_of(fewest) <= fewest, "colluders", secure.colluders,
                  concat("0 to ", fewest - 1, ", with ", fewest, " clients drawn per round"));
}

}  // namespace evenkeel::fed
