#include "tiny_federation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <map>

#include "base/random/random.h"
#include "models/testing.h"
#include "train/weight_gradient.h"

namespace evenkeel {
namespace {

constexpr int64_t kVocabulary = 37;

std::unique_ptr<models::CausalLm> make_model(std::string_view family) {
  const Json shape{{"vocab_size", kVocabulary},
                   {"hidden_size", 24},
                   {"intermediate_size", 20},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 3},
                   {"num_key_value_heads", 1},
                   {"max_position_embeddings", 64},
                   {"initializer_range", 0.2},
                   {"eos_token_id", 1},
                   {"pad_token_id", 0}};
  return testing::example_model(family, shape, models::BaseDtype::kFloat32, 21);
}

std::vector<data::Example> make_rows(int64_t client, int64_t rows) {
  RandomStream stream(77, "tiny federation", static_cast<uint64_t>(client));
  std::vector<data::Example> shard;
  for (int64_t i = 0; i < rows; ++i) {
    data::Example example;
    const auto length = 5 + stream.below(7);
    for (uint64_t t = 0; t < length; ++t) example.ids.push_back(static_cast<int64_t>(stream.below(kVocabulary)));
    example.first_target = static_cast<int64_t>(1 + stream.below(length - 1));
    shard.push_back(example);
  }
  return shard;
}

}  // namespace

TinyFederation::TinyFederation(std::string_view family) : model(make_model(family)), sites(model->all_sites()) {
  at::set_num_threads(1);  // more threads would only wait for each other
  const std::vector<int64_t> top_ks{1, 2, 3, 3}, rows{7, 12, 9, 5};
  for (int64_t id = 0; id < 4; ++id) {
    const auto c = static_cast<size_t>(id);
    clients.push_back({.id = id,
                       .budget = static_cast<double>(top_ks[c]) / 3,
                       .top_k = model->spec().num_experts > 0 ? top_ks[c] : 0,
                       .rank = rank,
                       .examples = static_cast<double>(rows[c]),
                       .trains = true});
    shards.push_back(make_rows(id, rows[c]));
  }
  training.local_epochs = 1.0;
  training.batch_size = 2;
  training.accumulation = 2;
  training.optimizer.lr = 5e-3;
  training.optimizer.weight_decay = 0;
}

methods::ServerView TinyFederation::server() const {
  const auto& spec = model->spec();
  return {.sites = sites,
          .moe_layers = spec.moe_layers,
          .num_experts = spec.num_experts,
          .max_top_k = spec.top_k,
          .rank = rank,
          .scale = scale(),
          .lr = training.optimizer.lr,
          .seed = seed,
          .gradient_sum = [this](const std::string& site, const methods::GradientSample& sample) {
            return gradient_sum(site, sample);
          }};
}

// Uses the first rows, where a run draws rows at random (fed/exchange/gradient_sums.cpp).
at::Tensor TinyFederation::gradient_sum(const std::string& site, const methods::GradientSample& sample) const {
  const bool pooled = sample.from == methods::SampleFrom::kPooled;
  const auto count = static_cast<int64_t>(clients.size());
  std::map<int64_t, std::pair<int64_t, std::vector<const data::Example*>>> lists;  // K_c and rows, by K_c or by client
  int64_t left = sample.rows;
  for (const auto& client : clients) {
    auto& [top_k, rows] = lists[pooled ? client.top_k : client.id];
    top_k = client.top_k;
    if (!pooled) left = (sample.rows + count - 1) / count;
    for (const auto& row : shards[static_cast<size_t>(client.id)])
      if (left-- > 0) rows.push_back(&row);
  }
  at::Tensor sum;
  for (const auto& [key, list] : lists) {
    const train::GradientRows rows{list.second, 3, {.top_k = list.first, .gate_norm = gate_norm}};
    const auto part = train::weight_gradients(*model, {{site, sites.at(site)}}, rows).at(site);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

methods::ClientView TinyFederation::view(const methods::ClientProfile& client, int64_t round) const {
  static const methods::Common kNothing{};
  return view(client, round, kNothing);
}

methods::ClientView TinyFederation::view(const methods::ClientProfile& client, int64_t round,
                                         const methods::Common& common) const {
  return {.client = client,
          .sites = sites,
          .common = common,
          .scale = scale(),
          .gate_norm = gate_norm,
          .round = round,
          .seed = seed,
          .memory = memory};
}

methods::RoundView TinyFederation::round(int64_t number, const std::vector<int64_t>& ids) const {
  methods::RoundView view{.round = number};
  for (const int64_t id : ids) view.participants.push_back(clients[static_cast<size_t>(id)]);
  if (ids.empty()) view.participants = clients;
  double rows = 0;
  for (const auto& client : view.participants) rows += client.examples;
  for (const auto& client : view.participants) view.weights.push_back(client.examples / rows);
  double all_rows = 0;
  for (const auto& client : clients) all_rows += client.examples;
  for (const auto& client : clients)
    view.mean_top_k_of_all += client.examples / all_rows * static_cast<double>(client.top_k);
  return view;
}

train::LocalResult TinyFederation::train(const methods::FederatedMethod& method, const methods::ServerState& state,
                                         const methods::RoundView& round, const methods::ClientProfile& client) const {
  const auto download = method.broadcast(state, client, round);
  return train::train_locally(
      *model, method, {download, view(client, round.round, state.common), shards[static_cast<size_t>(client.id)]},
      training);
}

std::vector<methods::ClientUpdate> TinyFederation::train_all(const methods::FederatedMethod& method,
                                                             const methods::ServerState& state,
                                                             const methods::RoundView& round) const {
  std::vector<methods::ClientUpdate> updates;
  for (const auto& client : round.participants) {
    auto result = train(method, state, round, client);
    updates.push_back({.client = client, .payload = std::move(result.upload), .steps = result.steps});
  }
  return updates;
}

methods::ServerState TinyFederation::aggregate(const methods::FederatedMethod& method,
                                               const methods::ServerState& state, const methods::RoundView& round,
                                               const methods::Uploads& uploads) const {
  auto next = method.aggregate(server(), state, round, uploads);
  methods::add_base_delta(next, lora::TransportDtype::kFloat32);
  return next;
}

methods::ServerState TinyFederation::run(const methods::FederatedMethod& method, int64_t rounds) const {
  auto state = method.initialize(server());
  for (int64_t t = 0; t < rounds; ++t) {
    const auto now = round(t, drawn);
    state = aggregate(method, state, now, train_all(method, state, now));
  }
  return state;
}

std::unique_ptr<methods::FederatedMethod> make_method(std::string_view name, const std::string& toml) {
  return methods::find_method(name).make(config::Table::parse(toml, "test"));
}

std::map<std::string, at::Tensor> effect(const methods::ServerState& state) {
  std::map<std::string, at::Tensor> sums;
  const auto add = [&](const lora::AdapterState& adapters) {
    for (const auto& [site, factors] : adapters) {
      const auto delta = lora::delta_weight(factors).to(at::kDouble);
      auto& sum = sums[site];
      sum = sum.defined() ? sum + delta : delta;
    }
  };
  add(state.common.base_change);
  add(lora::completed(state.global.adapters, state.common.fixed));
  return sums;
}

bool same(const at::Tensor& x, const at::Tensor& y) {
  return x.defined() == y.defined() && (!x.defined() || x.equal(y));
}

bool equal(const lora::AdapterState& left, const lora::AdapterState& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && same(x.second.a, y.second.a) && same(x.second.b, y.second.b) &&
           same(x.second.core, y.second.core);
  });
}

double difference(const lora::AdapterState& left, const lora::AdapterState& right) {
  double largest = 0;
  for (const auto& [site, factors] : left) {
    const auto& other = right.at(site);
    for (const auto& delta : {factors.a - other.a, factors.b - other.b})
      largest = std::max(largest, delta.abs().max().item<double>());
  }
  return largest;
}

}  // namespace evenkeel
