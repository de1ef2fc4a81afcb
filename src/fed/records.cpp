#include "fed/records.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>

#include "models/cost.h"
#include "nn/utilization.h"

namespace evenkeel {
namespace {

double per(double sum, int64_t count) { return count > 0 ? sum / static_cast<double>(count) : 0.0; }

/// Over the selected experts: because the method asks for it, or because the checkpoint is made so.
bool gates_sum_to_one(const Server& server) {
  return server.config.method.gate_norm == GateNorm::kRenormSelected || server.norm_topk_prob;
}

OrderedJson client_json(const ClientProfile& client, double weight, const ClientRecord& record) {
  return {{"id", client.id},
          {"budget", client.budget},
          {"top_k", client.top_k},
          {"rank", client.rank},
          {"examples", static_cast<int64_t>(client.examples)},
          {"weight", weight},
          {"steps", record.steps},
          {"tokens", record.tokens},
          {"targets", record.targets},
          {"loss", per(record.loss_sum, record.targets)},
          {"first_loss", record.first_loss},
          {"last_loss", record.last_loss},
          {"bytes_up", record.bytes_up},
          {"bytes_down", record.bytes_down},
          {"bytes_up_parts", record.up_parts},
          {"bytes_down_parts", record.down_parts},
          {"experts_per_token", experts_per_token(record.counts)},
          {"flops", record.flops},
          {"metrics", record.metrics},
          {"seconds", record.seconds}};
}

/// Sum of a member over the clients.
template <typename T, typename Record>
T total(std::span<const ClientRecord> records, T Record::*member) {
  T sum = 0;
  for (const auto& record : records) sum += record.*member;
  return sum;
}

int64_t total(const Traffic& traffic) {
  int64_t sum = 0;
  for (const auto& [content, bytes] : traffic) sum += bytes;
  return sum;
}

/// Of all clients and `other`; no line for a content of zero bytes.
Traffic traffic(std::span<const ClientRecord> records, Traffic ClientRecord::*parts, Traffic other) {
  for (const auto& record : records)
    for (const auto& [content, bytes] : record.*parts) other[content] += bytes;
  std::erase_if(other, [](const auto& part) { return part.second == 0; });
  return other;
}

double mean(std::span<const ClientRecord> records, double LocalReport::*member) {
  return per(total(records, member), static_cast<int64_t>(records.size()));
}

/// Means of what the clients' method halves measured, weighted by their steps.
std::map<std::string, double> mean_metrics(std::span<const ClientRecord> records) {
  Metrics metrics;
  for (const auto& record : records)
    for (const auto& [name, value] : record.metrics) metrics.add(name, value, static_cast<double>(record.steps));
  return metrics.means();
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
  return utilization(counts, tokens, weights);
}

/// The balance measures of one quantity per layer, and of all layers together.
void add_balance(OrderedJson& json, const std::vector<at::Tensor>& u_LE) {
  std::vector<double> entropies, ginis;
  std::vector<int64_t> dead, nearly_dead;
  OrderedJson utilization = OrderedJson::array();
  for (const auto& u_E : u_LE) {
    utilization.push_back(tensor_json(u_E));
    entropies.push_back(entropy(u_E));
    ginis.push_back(gini(u_E));
    dead.push_back(dead_experts(u_E));
    nearly_dead.push_back(nearly_dead_experts(u_E));
  }
  const auto entropy_L = at::tensor(entropies, at::kDouble);
  json["utilization"] = utilization;
  json["entropy"] = entropies;
  json["gini"] = ginis;
  json["dead_experts"] = dead;
  json["nearly_dead_experts"] = nearly_dead;
  json["entropy_mean"] = entropy_L.mean().item<double>();
  json["entropy_std"] = entropy_L.std(false).item<double>();
  json["entropy_joint"] = entropy(at::cat(u_LE));
  json["entropy_unnormalized"] = entropy_unnormalized(at::cat(u_LE));
  json["gini_mean"] = at::tensor(ginis, at::kDouble).mean().item<double>();
}

void add_utilization(OrderedJson& json, const Server& server, std::span<const ClientRecord> records,
                     std::span<const double> weights) {
  const auto& layers = server.model.moe_layers;
  if (layers.empty()) return;
  std::vector<at::Tensor> u_LE;
  for (const auto& layer : layers) u_LE.push_back(layer_utilization(layer, records, weights));
  json["layers"] = layers;
  add_balance(json, u_LE);
}

OrderedJson diagnostics_json(const Server& server, const ServerState& state) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [name, tensor] : server.method->diagnostics(state)) json[name] = tensor_json(tensor);
  return json;
}

OrderedJson seconds_json(const PhaseSeconds& seconds, int64_t tokens) {
  return {{"broadcast", seconds.broadcast},
          {"train", seconds.train},
          {"upload", seconds.upload},
          {"aggregate", seconds.aggregate},
          {"tokens_per_second", seconds.train > 0 ? static_cast<double>(tokens) / seconds.train : 0.0}};
}

}  // namespace

OrderedJson tensor_json(const at::Tensor& tensor) {
  if (tensor.dim() == 0) return tensor.item<double>();
  OrderedJson list = OrderedJson::array();
  for (int64_t i = 0; i < tensor.size(0); ++i) list.push_back(tensor_json(tensor[i]));
  return list;
}

double experts_per_token(const RoutingByLayer& counts) {
  double sum = 0;
  for (const auto& [layer, stats] : counts)
    sum += per(static_cast<double>(stats.counts.sum().item<int64_t>()), stats.tokens);
  return per(sum, static_cast<int64_t>(counts.size()));
}

double client_flops(const Server& server, const ClientProfile& client, const LocalReport& report) {
  const int64_t sequences = report.steps * server.config.train.batch_size * server.config.train.accumulation;
  const CostShape shape{
      .tokens = report.tokens, .length = sequences > 0 ? report.tokens / sequences : 0, .top_k = client.top_k};
  return total(training_flops(forward_cost(server.model, shape, server.sites, client.rank)));
}

OrderedJson round_record(const Server& server, const RoundView& round, std::span<const ClientRecord> records,
                         const OtherTraffic& other, const ServerState& next, const PhaseSeconds& seconds) {
  OrderedJson clients = OrderedJson::array();
  for (size_t i = 0; i < records.size(); ++i)
    clients.push_back(client_json(round.participants[i], round.weights[i], records[i]));
  const auto up = traffic(records, &ClientRecord::up_parts, other.up);
  const auto down = traffic(records, &ClientRecord::down_parts, other.down);
  const int64_t tokens = total(records, &ClientRecord::tokens), targets = total(records, &ClientRecord::targets);
  OrderedJson json = {{"round", round.round + 1},
                      {"method", server.config.method.name},
                      {"gate_norm", config::name_of(server.config.method.gate_norm)},
                      {"gates_sum_to_one", gates_sum_to_one(server)},
                      {"participants", records.size()},
                      {"loss", per(total(records, &ClientRecord::loss_sum), targets)},
                      {"first_loss", mean(records, &ClientRecord::first_loss)},
                      {"last_loss", mean(records, &ClientRecord::last_loss)},
                      {"steps", total(records, &ClientRecord::steps)},
                      {"tokens", tokens},
                      {"targets", targets},
                      {"bytes_up", total(up)},
                      {"bytes_down", total(down)},
                      {"bytes_up_parts", up},
                      {"bytes_down_parts", down},
                      {"experts_per_token", mean_experts_per_token(records)},
                      {"flops", total(records, &ClientRecord::flops)},
                      {"metrics", mean_metrics(records)}};
  add_utilization(json, server, records, round.weights);
  json["diagnostics"] = diagnostics_json(server, next);
  json["clients"] = clients;
  json["seconds"] = seconds_json(seconds, tokens);
  return json;
}

}  // namespace evenkeel
