// Checks what every method must provide on every model family. Both registries are read, so new entries are tested
// automatically.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/testing.h"
#include "fed/exchange/summed_upload.h"
#include "lora/testing.h"
#include "tiny_federation.h"

namespace evenkeel {
namespace {

using Case = std::tuple<std::string, std::string>;  // method, family

std::vector<std::string> method_names() {
  std::vector<std::string> result;
  for (const auto& entry : methods::methods()) result.emplace_back(entry.name);
  return result;
}

std::vector<std::string> family_names() {
  std::vector<std::string> result;
  for (const auto& entry : models::model_families()) result.emplace_back(entry.family);
  return result;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  auto name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// Returns the trained tensors of a setup, by site.
std::vector<std::pair<std::string, at::Tensor>> trained(const methods::LocalSetup& setup) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& [site, factors] : setup.adapters) {
    if (setup.trainable == methods::Trainable::kAB) result.emplace_back(site, factors.a);
    if (setup.trainable != methods::Trainable::kCore) result.emplace_back(site, factors.b);
    if (setup.trainable == methods::Trainable::kCore) result.emplace_back(site, factors.core);
  }
  return result;
}

class MethodContract : public ::testing::TestWithParam<Case> {
 protected:
  MethodContract()
      : entry(methods::find_method(std::get<0>(GetParam()))),
        world(std::get<1>(GetParam())),
        method(make_method(entry.name)) {}

  void SetUp() override {
    if (entry.needs_experts && world.server().num_experts == 0) GTEST_SKIP() << "refuses a dense model";
    state = method->initialize(world.server());
  }

  /// Returns the method with options that discard nothing.
  static std::unique_ptr<methods::FederatedMethod> lossless(std::string_view name) {
    return make_method(name, name == "florist" ? "tau = 1.0" : "");
  }

  /// Returns an upload's update of one site, including the factors that are not sent.
  static at::Tensor update_of(const methods::ClientUpdate& update, const methods::ServerState& from,
                              const std::string& site) {
    return lora::delta_weight(lora::completed(update.payload.adapters, from.common.fixed).at(site)).to(at::kDouble);
  }

  /// Returns the state after a round whose server gets the sum of the clients' summands alone.
  methods::ServerState aggregate_hidden(const methods::RoundView& round) const {
    const auto server = world.server();
    const fed::SummedRun run{*method, entry, world.sites, server.moe_layers, server.num_experts};
    const auto format = secure::RingFormat::of(64, 1.0, std::ssize(round.participants));
    std::vector<methods::ClientUpdate> bare;
    secure::RingVector sum;
    fed::SummedLayout layout;
    for (size_t i = 0; i < round.participants.size(); ++i) {
      const auto& client = round.participants[i];
      const auto result = world.train(*method, state, round, client);
      const methods::ClientUpdate update{client, result.upload, result.steps};
      const auto download = method->broadcast(state, client, round);
      layout = fed::summed_layout(run, update);
      const auto summand = fed::summand_of(
          run, {update, download.adapters, result},
          {.weight = round.weights[i], .bits = 64, .exponent = format.exponent, .range = 1}, crypto::Secret());
      bare.push_back({.client = client, .payload = {}, .steps = result.steps});
      if (i > 0) secure::add_to(sum.values, summand.values), secure::add_to(sum.counts, summand.counts);
      if (i == 0) sum = summand;
    }
    auto totals = fed::read_sum(layout, sum, format, 1.0, std::ssize(round.participants)).totals;
    totals.before = method->broadcast(state, round.participants[0], round).adapters;
    methods::UploadShare all{.places = {}, .total = bare.size()};
    for (size_t i = 0; i < bare.size(); ++i) all.places.push_back(i);
    return method->aggregate(server, state, round, {bare, all, totals});
  }

  const methods::MethodEntry& entry;
  TinyFederation world;
  std::unique_ptr<methods::FederatedMethod> method;
  methods::ServerState state;
};

TEST_P(MethodContract, IdenticalUploadsGiveThatUpdate) {
  const auto exact = lossless(entry.name);
  const auto round = world.round(0, {1, 2, 3});
  const auto one = world.train_all(*exact, state, world.round(0, {1}));
  const std::vector<methods::ClientUpdate> same(3, one[0]);
  const auto merged = effect(world.aggregate(*exact, state, round, same));
  ASSERT_FALSE(one[0].payload.adapters.empty());
  for (const auto& [site, factors] : one[0].payload.adapters)
    EXPECT_TRUE(merged.at(site).allclose(update_of(one[0], state, site), 1e-5, 1e-6)) << site;
}

TEST_P(MethodContract, TheOrderOfClientsIsIrrelevant) {
  const auto forth = world.round(0), back = world.round(0, {3, 2, 1, 0});
  const auto a = effect(world.aggregate(*method, state, forth, world.train_all(*method, state, forth)));
  const auto b = effect(world.aggregate(*method, state, back, world.train_all(*method, state, back)));
  ASSERT_FALSE(a.empty());
  for (const auto& [site, delta] : a) EXPECT_TRUE(delta.allclose(b.at(site), 1e-5, 1e-6)) << site;
}

TEST_P(MethodContract, AggregateIsTheMeanOfProductsExactlyForExactMethods) {
  const auto round = world.round(0);
  const auto updates = world.train_all(*method, state, round);
  double error = 0, size = 0;
  for (const auto& [site, delta] : effect(world.aggregate(*method, state, round, updates))) {
    auto mean = at::zeros_like(delta);
    for (size_t c = 0; c < updates.size(); ++c) mean += round.weights[c] * update_of(updates[c], state, site);
    error += (mean - delta).square().sum().item<double>();
    size += mean.square().sum().item<double>();
  }
  const double relative = std::sqrt(error / size);
  if (entry.exact)
    EXPECT_LT(relative, 1e-5);
  else
    EXPECT_GT(relative, 1e-4);
}

TEST_P(MethodContract, AggregatingTwiceGivesTheSameBitsAndChangesNoArgument) {
  const auto round = world.round(0);
  const auto updates = world.train_all(*method, state, round);
  const auto state_before = lora::clone(state.global.adapters),
             upload_before = lora::clone(updates[0].payload.adapters);
  const auto first = method->aggregate(world.server(), state, round, updates);
  const auto second = method->aggregate(world.server(), state, round, updates);
  EXPECT_TRUE(equal(first.global.adapters, second.global.adapters));
  for (const auto& [name, tensor] : first.global.extras)
    EXPECT_TRUE(tensor.equal(second.global.extras.at(name))) << name;
  for (const auto& [name, tensor] : first.memory) EXPECT_TRUE(tensor.equal(second.memory.at(name))) << name;
  EXPECT_TRUE(equal(state.global.adapters, state_before));
  EXPECT_TRUE(equal(updates[0].payload.adapters, upload_before));
}

TEST_P(MethodContract, UploadsAreReadOneByOneExactlyIfRegisteredSo) {
  const auto round = world.round(0);
  const auto updates = world.train_all(*method, state, round);
  const methods::Uploads sums_only(updates, false);
  if (entry.needs_individuals) {
    EXPECT_THROW(method->aggregate(world.server(), state, round, sums_only), Error);
    return;
  }
  const auto open = method->aggregate(world.server(), state, round, updates);
  const auto locked = method->aggregate(world.server(), state, round, sums_only);
  EXPECT_TRUE(equal(open.global.adapters, locked.global.adapters));
  for (const auto& [name, tensor] : open.memory) EXPECT_TRUE(tensor.equal(locked.memory.at(name))) << name;
}

TEST_P(MethodContract, SumsOfHiddenUploadsGiveTheStateOfSingleOnes) {
  if (entry.from_sums == methods::FromSums::kNo) {
    EXPECT_FALSE(entry.why_single.empty());
    GTEST_SKIP() << entry.name << ' ' << entry.why_single;
  }
  EXPECT_FALSE(entry.needs_individuals);
  method->check_sums();
  state = world.aggregate(*method, state, world.round(0), world.train_all(*method, state, world.round(0)));
  const auto round = world.round(1);
  const auto hidden = aggregate_hidden(round);
  const auto open = method->aggregate(world.server(), state, round, world.train_all(*method, state, round));
  const auto of_hidden = effect(hidden), of_open = effect(open), before = effect(state);
  double moved = 0;
  for (const auto& [site, delta] : of_open) {
    EXPECT_LT((of_hidden.at(site) - delta).abs().max().item<double>(), 1e-6) << site;
    moved = std::max(moved, (before.at(site) - delta).abs().max().item<double>());
  }
  EXPECT_GT(moved, 1e-5);
  for (const auto& [name, tensor] : open.memory)
    EXPECT_TRUE(at::allclose(tensor.to(at::kDouble), hidden.memory.at(name).to(at::kDouble), 1e-3, 1e-9)) << name;
  for (const auto& [name, tensor] : open.global.extras)
    EXPECT_TRUE(at::allclose(tensor.to(at::kDouble), hidden.global.extras.at(name).to(at::kDouble), 1e-3, 1e-4))
        << name;
}

TEST_P(MethodContract, MappedUploadsAreReleasedAfterReading) {
  if (!entry.needs_individuals) GTEST_SKIP() << "what is summed leaves it of itself";
  const testing::TemporaryFolder folder;
  const auto round = world.round(0);
  const auto trained = world.train_all(*method, state, round);
  auto updates = trained;
  for (auto& update : updates)
    update.payload = testing::mapped(update.payload, folder.path() / std::to_string(update.client.id));
  EXPECT_GT(testing::resident_kib(folder.path()), 0) << "headers were read";
  const auto next = method->aggregate(world.server(), state, round, updates);
  EXPECT_EQ(testing::resident_kib(folder.path()), 0);
  EXPECT_TRUE(equal(next.global.adapters, method->aggregate(world.server(), state, round, trained).global.adapters));
}

TEST_P(MethodContract, ReportedBytesEqualTheFileAndPayloadsRoundTrip) {
  const auto round = world.round(0, {1});
  const auto updates = world.train_all(*method, state, round);
  for (const auto& payload : {method->broadcast(state, round.participants[0], round), updates[0].payload}) {
    const auto encoded = lora::encode(payload, lora::TransportDtype::kFloat32, {});
    EXPECT_EQ(encoded.size(), lora::payload_size(payload, lora::TransportDtype::kFloat32));
    const auto read = lora::decode(encoded.bytes, "the wire");
    EXPECT_TRUE(equal(payload.adapters, read.adapters));
    EXPECT_TRUE(equal(payload.base_delta, read.base_delta));
    ASSERT_EQ(payload.extras.size(), read.extras.size());
    for (const auto& [name, tensor] : payload.extras) EXPECT_TRUE(tensor.equal(read.extras.at(name))) << name;
  }
}

TEST_P(MethodContract, FrozenFactorsAreNotSent) {
  const auto round = world.round(0, {1});
  const auto download = method->broadcast(state, round.participants[0], round);
  const auto setup = method->prepare(download, world.view(round.participants[0], 0, state.common));
  const auto updates = world.train_all(*method, state, round);
  for (const auto& [site, factors] : updates[0].payload.adapters) {
    EXPECT_EQ(factors.a.defined(), setup.trainable == methods::Trainable::kAB) << site;
    EXPECT_EQ(factors.b.defined(), setup.trainable != methods::Trainable::kCore) << site;
    EXPECT_EQ(factors.core.defined(), setup.trainable == methods::Trainable::kCore) << site;
  }
}

TEST_P(MethodContract, AClientUsesExactlyItsExpertsPerTokenAndAtMostItsRank) {
  for (const auto& client : world.clients) {
    const auto result = world.train(*method, state, world.round(0), client);
    for (const auto& [layer, stats] : result.counts) {
      EXPECT_EQ(stats.tokens, result.tokens) << layer;
      EXPECT_EQ(stats.counts.sum().item<int64_t>(), stats.tokens * client.top_k) << layer;
      EXPECT_LE(stats.counts.max().item<int64_t>(), stats.tokens) << layer;
    }
    for (const auto& [site, factors] : result.upload.adapters) EXPECT_LE(factors.rank(), client.rank) << site;
  }
}

TEST_P(MethodContract, TrainingDoesNotChangeTheBaseAndTheDownload) {
  TensorMap base;
  for (const auto& [name, tensor] : world.model->parameters()) base[name] = tensor.clone();
  const auto round = world.round(0);
  const auto download = method->broadcast(state, round.participants[1], round);
  const auto before = lora::clone(download.adapters);
  train::train_locally(*world.model, *method,
                       {download, world.view(round.participants[1], 0, state.common), world.shards[1]}, world.training);
  EXPECT_TRUE(equal(download.adapters, before));
  for (const auto& [name, tensor] : world.model->parameters()) {
    EXPECT_TRUE(tensor.equal(base.at(name))) << name;
    EXPECT_FALSE(tensor.requires_grad()) << name;
    EXPECT_FALSE(tensor.grad().defined()) << name;
  }
}

TEST_P(MethodContract, EditGradientsChangesOnlyExpertSites) {
  const auto round = world.round(0);
  const auto later = world.aggregate(*method, state, round, world.train_all(*method, state, round));
  const auto download = method->broadcast(later, round.participants[0], round);
  const auto view = world.view(round.participants[0], 1, later.common);
  auto setup = method->prepare(download, view);
  for (auto& [site, tensor] : trained(setup)) {
    tensor.requires_grad_(true);
    tensor.mutable_grad() = at::full_like(tensor, 0.5);
  }
  nn::RoutingByLayer routing;
  for (const auto& layer : world.server().moe_layers) {
    auto counts = at::zeros({world.server().num_experts}, at::kLong);
    counts[2] = 9;
    routing[layer] = {.router_logits = {}, .counts = counts, .tokens = 9};
  }
  methods::Metrics metrics;
  const std::vector<nn::RoutingByLayer> micro_batches{routing};
  method->edit_gradients({view, download, setup, micro_batches, world.training.optimizer.lr, metrics});
  for (const auto& [site, tensor] : trained(setup)) {
    const auto& grad = tensor.grad();
    if (world.sites.at(site).experts == 0) {
      EXPECT_TRUE(grad.eq(0.5).all().item<bool>()) << site;
    } else {
      EXPECT_TRUE(grad[2].eq(0.5).all().item<bool>()) << site << ": the expert in use";
    }
  }
}

TEST_P(MethodContract, EveryTrainedTensorChanges) {
  const auto round = world.round(0, {2});
  world.training.local_epochs = 3;
  const auto updates = world.train_all(*method, state, round);
  const auto download = method->broadcast(state, round.participants[0], round);
  auto before = method->prepare(download, world.view(round.participants[0], 0, state.common));
  auto after = before;
  after.adapters = lora::completed(updates[0].payload.adapters, state.common.fixed);
  const auto then = trained(before), now = trained(after);
  ASSERT_EQ(then.size(), now.size());
  ASSERT_FALSE(now.empty());
  for (size_t i = 0; i < now.size(); ++i) EXPECT_FALSE(now[i].second.equal(then[i].second)) << now[i].first;
}

TEST_P(MethodContract, BeforeTheFirstRoundRoutingIsPlainTopK) {
  for (const bool trains : {true, false}) {
    auto client = world.clients[1];
    client.trains = trains;
    const auto download = method->broadcast(state, client, world.round(0));
    const auto router = method->prepare(download, world.view(client, 0, state.common)).router;
    at::manual_seed(5);
    const auto logits_TE = at::randn({50, world.server().num_experts});
    for (const auto& layer : world.server().moe_layers) {
      const auto found = router.modulation.find(layer);
      const auto mine =
          nn::route(logits_TE, router, found == router.modulation.end() ? at::Tensor{} : found->second, false);
      nn::RouterOptions top_2;
      top_2.top_k = 2;
      top_2.gate_norm = router.gate_norm;
      const auto plain = nn::route(logits_TE, top_2, {}, false);
      EXPECT_TRUE(mine.experts.equal(plain.experts)) << layer;
      EXPECT_TRUE(mine.weights.equal(plain.weights)) << layer;
    }
  }
}

TEST_P(MethodContract, RejectsADenseModelIfItNeedsExperts) {
  auto dense = world.server();
  dense.num_experts = 0;
  dense.moe_layers.clear();
  if (!entry.needs_experts) {
    EXPECT_NO_THROW(method->initialize(dense));
    return;
  }
  try {
    method->initialize(dense);
    FAIL() << "a dense model was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kConfig);
  }
}

TEST_P(MethodContract, RejectsAnUnknownKey) { EXPECT_THROW(make_method(entry.name, "no_such_key = 1"), Error); }

TEST_P(MethodContract, WrittenConfigIsReadBackEqual) {
  config::Writer first, second;
  entry.write(config::Table::parse("", "test"), first);
  entry.write(config::Table::parse(first.text(), "test"), second);
  EXPECT_EQ(first.text(), second.text());
  EXPECT_NO_THROW(make_method(entry.name, first.text(true)));
}

INSTANTIATE_TEST_SUITE_P(All, MethodContract,
                         ::testing::Combine(::testing::ValuesIn(method_names()), ::testing::ValuesIn(family_names())),
                         case_name);

}  // namespace
}  // namespace evenkeel
