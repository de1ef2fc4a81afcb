#include "records/client_costs.h"

#include <map>
#include <utility>

namespace evenkeel::records {

std::optional<double> ClientCost::token_flops() const {
  return tokens > 0 ? std::optional(kCostTokens * flops / tokens) : std::nullopt;
}

std::optional<double> ClientCost::token_seconds() const {
  return timed_tokens > 0 ? std::optional(kCostTokens * seconds / timed_tokens) : std::nullopt;
}

std::vector<ClientCost> client_costs(const RunRecords& run) {
  std::map<std::pair<int64_t, double>, ClientCost> sums;
  for (const auto& round : run.rounds)
    for (const auto& client : round.clients) {
      auto& sum = sums[{client.top_k, client.budget}];
      sum.budget = client.budget;
      sum.top_k = client.top_k;
      sum.tokens += static_cast<double>(client.tokens);
      sum.flops += client.flops;
      sum.seconds += client.seconds;
      if (client.seconds > 0) sum.timed_tokens += static_cast<double>(client.tokens);
    }
  std::vector<ClientCost> costs;
  for (const auto& [key, sum] : sums) costs.push_back(sum);
  return costs;
}

}  // namespace evenkeel::records
