#include "fed/round/round_measures.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "models/cost.h"
#include "nn/moe/utilization.h"

namespace evenkeel::fed {
namespace {

double per(double sum, int64_t count) { return count > 0 ? sum / static_cast<double>(count) : 0.0; }

/// Returns true if the gate weights of the selected experts sum to one, by the method or by the checkpoint.
bool gates_sum_to_one(const Server& server) {
  return nn::renormalises(server.config->method.gate_norm, server.model.gates.renormalise);
}

/// Returns the sum of a member over the clients.
template <typename T, typename Record>
T total(std::span<const ClientRecord> records, T Record::*member) {
  T sum = 0;
  for (const auto& record : records) sum += record.*member;
  return sum;
}

/// Returns the traffic of all clients plus `other`, without contents of zero bytes.
Traffic traffic(std::span<const ClientRecord> records, Traffic ClientRecord::*parts, Traffic other) {
  for (const auto& record : records)
    for (const auto& [content, bytes] : record.*parts) other[content] += bytes;
  std::erase_if(other, [](const auto& part) { return part.second == 0; });
  return other;
}

bool tells_loss(const ClientRecord& record) { return !record.privacy || !record.privacy->withheld; }

/// Returns the mean over the clients that tell their losses; nothing if none does.
std::optional<double> mean(std::span<const ClientRecord> records, double train::LocalReport::*member) {
  const auto told = std::count_if(records.begin(), records.end(), tells_loss);
  return told > 0 ? std::optional(per(total(records, member), told)) : std::nullopt;
}

/// Returns the means of the metrics that the clients' method halves measured, weighted by their steps.
std::map<std::string, double> mean_metrics(std::span<const ClientRecord> records) {
  methods::Metrics metrics;
  for (const auto& record : records)
    for (const auto& [name, value] : record.metrics) metrics.add(name, value, static_cast<double>(record.steps));
  return metrics.means();
}

ClientOfRound client_of(const Server& server, const methods::ClientProfile& profile, double weight,
                        const ClientRecord& record) {
  ClientOfRound client;
  client.id = profile.id;
  client.name = server.config->clients.name(profile.id);
  if (const auto dealt = server.nodes_by_arrival.find(profile.id); dealt != server.nodes_by_arrival.end())
    client.node = dealt->second;
  client.budget = profile.budget;
  client.top_k = profile.top_k;
  client.rank = profile.rank;
  client.examples = static_cast<int64_t>(profile.examples);
  client.weight = weight;
  const auto& privacy = server.config->privacy;
  client.withheld = server.hides_uploads() || privacy.protects_clients();
  client.of_unknown_size = privacy.protects_clients() && !privacy.public_sizes;
  client.steps = record.steps;
  client.tokens = record.tokens;
  client.targets = record.targets;
  if (tells_loss(record) && !client.withheld) {
    client.loss = per(record.loss_sum, record.targets);
    client.first_loss = record.first_loss;
    client.last_loss = record.last_loss;
  }
  client.bytes_up = record.bytes_up;
  client.bytes_down = record.bytes_down;
  client.bytes_up_parts = record.up_parts;
  client.bytes_down_parts = record.down_parts;
  client.experts_per_token = experts_per_token(record.counts);
  client.flops = record.flops;
  client.metrics = record.metrics;
  client.seconds = record.seconds;
  client.privacy = record.privacy;
  return client;
}

double mean_experts_per_token(std::span<const ClientRecord> records) {
  double choices = 0;
  for (const auto& record : records) choices += experts_per_token(record.counts) * static_cast<double>(record.tokens);
  return per(choices, total(records, &ClientRecord::tokens));
}

at::Tensor layer_utilization(const std::string& layer, std::span<const ClientRecord> records,
                             std::span<const double> weights) {
  std::vector<at::Tensor> counts;
  std::vector<int64_t> tokens;
  for (const auto& record : records) {
    counts.push_back(record.counts.at(layer).counts);
    tokens.push_back(record.counts.at(layer).tokens);
  }
  return nn::utilization(counts, tokens, weights);
}

/// Returns the values of u_E, [E] float64.
std::vector<double> listed(const at::Tensor& u_E) {
  const auto* data = u_E.const_data_ptr<double>();
  return {data, data + u_E.numel()};
}

/// \param utilization_of  returns u_E of a layer, [E] float64
std::optional<ExpertUse> expert_use(const std::vector<std::string>& layers,
                                    const std::function<at::Tensor(const std::string& layer)>& utilization_of) {
  if (layers.empty()) return std::nullopt;
  ExpertUse use;
  use.layers = layers;
  std::vector<at::Tensor> u_LE;
  for (const auto& layer : layers) {
    const auto& u_E = u_LE.emplace_back(utilization_of(layer));
    use.utilization.push_back(listed(u_E));
    use.entropy.push_back(nn::entropy(u_E));
    use.gini.push_back(nn::gini(u_E));
    use.dead_experts.push_back(nn::dead_experts(u_E));
    use.nearly_dead_experts.push_back(nn::nearly_dead_experts(u_E));
  }
  const auto entropy_L = at::tensor(use.entropy, at::kDouble);
  use.entropy_mean = entropy_L.mean().item<double>();
  use.entropy_std = entropy_L.std(false).item<double>();
  use.entropy_joint = nn::entropy(at::cat(u_LE));
  use.entropy_unnormalized = nn::entropy_unnormalized(at::cat(u_LE));
  use.gini_mean = at::tensor(use.gini, at::kDouble).mean().item<double>();
  return use;
}

OrderedJson nested_lists(const at::Tensor& tensor) {
  if (tensor.dim() == 0) return tensor.item<double>();
  OrderedJson list = OrderedJson::array();
  for (int64_t i = 0; i < tensor.size(0); ++i) list.push_back(nested_lists(tensor[i]));
  return list;
}

Diagnostics diagnostics_of(const Server& server, const methods::ServerState& state) {
  Diagnostics diagnostics;
  for (const auto& [name, tensor] : server.method->diagnostics(state)) diagnostics.lists[name] = nested_lists(tensor);
  return diagnostics;
}

}  // namespace

double experts_per_token(const nn::RoutingByLayer& counts) {
  double sum = 0;
  for (const auto& [layer, stats] : counts)
    sum += per(static_cast<double>(stats.counts.sum().item<int64_t>()), stats.tokens);
  return per(sum, static_cast<int64_t>(counts.size()));
}

double client_flops(const Server& server, const methods::ClientProfile& client, const train::LocalReport& report) {
  const int64_t sequences = report.steps * server.config->train.rows_of_step();
  const models::CostShape shape{
      .tokens = report.tokens, .length = sequences > 0 ? report.tokens / sequences : 0, .top_k = client.top_k};
  return models::total(models::training_flops(models::forward_cost(server.model, shape, server.sites, client.rank)));
}

namespace {

/// Sets what is the sum or the mean of the clients' own measures.
void add_reports(RoundRecord& all, const Server& server, std::span<const ClientRecord> records,
                 std::span<const double> weights) {
  all.tokens = total(records, &ClientRecord::tokens);
  all.targets = total(records, &ClientRecord::targets);
  if (std::any_of(records.begin(), records.end(), tells_loss))
    all.loss = per(total(records, &ClientRecord::loss_sum), all.targets);
  all.first_loss = mean(records, &ClientRecord::first_loss);
  all.last_loss = mean(records, &ClientRecord::last_loss);
  all.experts_per_token = mean_experts_per_token(records);
  all.flops = total(records, &ClientRecord::flops);
  all.metrics = mean_metrics(records);
  if (std::all_of(records.begin(), records.end(), tells_loss))
    all.experts = expert_use(server.model.moe_layers,
                             [&](const std::string& layer) { return layer_utilization(layer, records, weights); });
}

/// Estimates the FLOPs of a round whose tokens are known of all clients together: each has a share by its steps.
double summed_flops(const Server& server, const methods::RoundView& round, std::span<const ClientRecord> records,
                    int64_t tokens) {
  const auto steps = static_cast<double>(std::max<int64_t>(total(records, &ClientRecord::steps), 1));
  double flops = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    train::LocalReport share = records[i];
    share.tokens = std::llround(static_cast<double>(tokens) * static_cast<double>(share.steps) / steps);
    flops += client_flops(server, round.participants[i], share);
  }
  return flops;
}

/// Sets the same measures from the sum of all clients' reports.
void add_report(RoundRecord& all, const Server& server, const methods::RoundView& round,
                std::span<const ClientRecord> records, const SummedReport& report) {
  const auto& secure = server.config->secure_aggregation;
  all.secure_aggregation =
      SummedRoundRecord{.mode = secure.mode,
                        .simulated = secure.mode == SecureMode::kMasks && !server.clients_are_nodes(),
                        .bits = secure.bits,
                        .clients = report.clients,
                        .values = report.values,
                        .beyond_range = report.beyond};
  if (!report.told) return;
  all.tokens = report.tokens;
  all.targets = report.targets;
  all.loss = per(report.loss_sum, report.targets);
  all.first_loss = report.first_loss;
  all.last_loss = report.last_loss;
  all.experts_per_token = report.experts_per_token;
  all.flops = summed_flops(server, round, records, report.tokens);
  all.metrics = report.metrics;
  all.experts =
      expert_use(server.model.moe_layers, [&](const std::string& layer) { return report.utilization.at(layer); });
}

}  // namespace

RoundRecord round_record(const Server& server, const methods::RoundView& round, const MeasuredRound& measured,
                         const methods::ServerState& next, const PhaseSeconds& seconds) {
  const auto& [records, other, report] = measured;
  RoundRecord all;
  all.round = round.round + 1;
  all.method = server.config->method.name;
  all.gate_norm = server.config->method.gate_norm;
  all.gates_sum_to_one = gates_sum_to_one(server);
  all.participants = static_cast<int64_t>(records.size());
  all.lr = server.scheduled_rate(round.round);
  all.steps = total(records, &ClientRecord::steps);
  all.withheld = server.config->privacy.protects_clients() || (report && !report->told);
  if (report)
    add_report(all, server, round, records, *report);
  else if (!all.withheld)
    add_reports(all, server, records, round.weights);
  all.bytes_up_parts = traffic(records, &ClientRecord::up_parts, other.up);
  all.bytes_down_parts = traffic(records, &ClientRecord::down_parts, other.down);
  all.bytes_up = total_bytes(all.bytes_up_parts);
  all.bytes_down = total_bytes(all.bytes_down_parts);
  all.diagnostics = diagnostics_of(server, next);
  for (size_t i = 0; i < records.size(); ++i)
    all.clients.push_back(client_of(server, round.participants[i], round.weights[i], records[i]));
  all.seconds = seconds;
  if (seconds.train > 0) all.seconds.tokens_per_second = static_cast<double>(all.tokens) / seconds.train;
  return all;
}

}  // namespace evenkeel::fed
