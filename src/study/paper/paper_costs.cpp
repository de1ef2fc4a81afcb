#include "study/paper/paper_costs.h"

#include <algorithm>
#include <map>
#include <vector>

#include "comparison/cost_by_k.h"
#include "fed/run/stored_config.h"
#include "models/causal_lm.h"
#include "models/cost.h"
#include "report/cost_by_k_table.h"
#include "study/paper/paper_experts.h"

namespace evenkeel::study {
namespace {

constexpr double kBytesPerMiB = 1 << 20;
constexpr double kPassTokens = 256;  // the paper's sequence length

/// Returns the clients of a budget in all rounds.
std::vector<fed::ClientOfRound> clients_of(const records::RunRecords& run, double budget) {
  std::vector<fed::ClientOfRound> found;
  for (const auto& round : run.rounds)
    for (const auto& client : round.clients)
      if (client.budget == budget) found.push_back(client);
  return found;
}

bool withholds_work(const fed::ClientOfRound& client) {
  return client.withheld || (client.privacy && client.privacy->withheld);
}

std::optional<double> mean_of_clients(const records::RunRecords& run, double budget,
                                      int64_t fed::RoundMeasures::*measure) {
  const auto clients = clients_of(run, budget);
  double sum = 0;
  for (const auto& client : clients) sum += static_cast<double>(client.*measure);
  return clients.empty() ? std::nullopt : std::optional(sum / static_cast<double>(clients.size()));
}

std::optional<double> mib_up(const records::RunRecords& run, double budget) {
  const auto bytes = mean_of_clients(run, budget, &fed::RoundMeasures::bytes_up);
  return bytes ? std::optional(*bytes / kBytesPerMiB) : std::nullopt;
}

std::optional<double> mib_down(const records::RunRecords& run, double budget) {
  const auto bytes = mean_of_clients(run, budget, &fed::RoundMeasures::bytes_down);
  return bytes ? std::optional(*bytes / kBytesPerMiB) : std::nullopt;
}

std::optional<double> pass_flops(const records::RunRecords& run, double budget) {
  double flops = 0, tokens = 0;
  for (const auto& client : clients_of(run, budget)) {
    flops += client.flops;
    tokens += static_cast<double>(client.tokens);
  }
  return tokens > 0 ? std::optional(flops / tokens * kPassTokens) : std::nullopt;
}

std::optional<double> parameters(const records::RunRecords& run, double budget) {
  const auto clients = clients_of(run, budget);
  if (clients.empty()) return std::nullopt;
  const auto model = models::load_shape(models::resolve_model_path(run.model));
  const auto sites = fed::run_config(run.folder)->lora.sites(*model);
  return static_cast<double>(models::activated_parameters(sites, clients.front().rank, clients.front().top_k));
}

std::optional<double> flops_share(const records::RunRecords& run, double budget) {
  const auto at_budget = pass_flops(run, budget), at_full = pass_flops(run, 1);
  return at_budget && at_full ? std::optional(*at_budget / *at_full) : std::nullopt;
}

std::optional<double> client_flops(const records::RunRecords& run, double budget) {
  const auto clients = clients_of(run, budget);
  if (std::any_of(clients.begin(), clients.end(), withholds_work)) return std::nullopt;
  double sum = 0;
  for (const auto& client : clients) sum += client.flops;
  return clients.empty() ? std::nullopt : std::optional(sum / static_cast<double>(clients.size()));
}

std::optional<double> aggregate_seconds(const records::RunRecords& run, double /*budget*/) {
  double sum = 0;
  for (const auto& round : run.rounds) sum += round.seconds.aggregate;
  return run.rounds.empty() ? std::nullopt : std::optional(sum / static_cast<double>(run.rounds.size()));
}

struct Cost {
  std::optional<double> (*of)(const records::RunRecords&, double);
  bool is_counted = true;
};

const std::map<std::string_view, Cost>& costs() {
  static const std::map<std::string_view, Cost> kCosts{{"bytes_up", {mib_up}},
                                                       {"bytes_down", {mib_down}},
                                                       {"pass_flops", {pass_flops}},
                                                       {"activated_parameters", {parameters}},
                                                       {"flops_share", {flops_share}},
                                                       {"client_flops", {client_flops}},
                                                       {"aggregate_seconds", {aggregate_seconds, false}}};
  return kCosts;
}

}  // namespace

BudgetCost budget_cost(std::string_view name) {
  const auto found = costs().find(name);
  if (found != costs().end()) return found->second.of;
  const auto of_experts = expert_measure(name);
  if (!of_experts) return {};
  return [of_experts](const records::RunRecords& run, double /*budget*/) { return of_experts(run); };
}

bool is_counted(std::string_view name) {
  const auto found = costs().find(name);
  return found != costs().end() && found->second.is_counted;
}

std::vector<report::Table> paper_costs_by_k(const PaperTable& table, std::span<const comparison::StudyRuns> studies) {
  std::vector<report::Table> tables;
  if (!table.cost_by_k) return tables;
  for (const auto& study : studies) {
    std::vector<std::string> arms;
    for (const auto& arm : table.arms)
      if (std::count(study.arms.begin(), study.arms.end(), arm) > 0) arms.push_back(arm);
    const auto costs = comparison::costs_by_k(study, arms, comparison::all_top_ks(study));
    if (costs.empty()) continue;
    tables.push_back(report::cost_by_k_table(costs));
    if (studies.size() > 1) tables.back().title = concat(study.name, ": ", tables.back().title);
  }
  return tables;
}

}  // namespace evenkeel::study
