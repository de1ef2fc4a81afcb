#include "methods/method_registry.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/mapped_files.h"
#include "base/testing.h"
#include "lora/testing.h"
#include "methods/testing.h"

namespace evenkeel::methods {
namespace {

const std::string kSite = "model.layers.0.self_attn.q_proj";

std::unique_ptr<FederatedMethod> fedit() { return find_method("fedit").make(config::Table::parse("", "test")); }

lora::Sites one_site() { return {{kSite, {.experts = 0, .in = 3, .out = 2, .moe_layer = {}}}}; }

ClientUpdate update(int64_t id, const at::Tensor& a, const at::Tensor& b) {
  ClientUpdate update;
  update.client.id = id;
  update.payload.adapters[kSite] = {.a = a, .b = b, .scaling = 1.0};
  update.steps = 1;
  return update;
}

ServerView view(const lora::Sites& sites) {
  return {.sites = sites,
          .moe_layers = {},
          .num_experts = 0,
          .max_top_k = 0,
          .rank = 1,
          .scale = {.alpha = 1, .rank = 1},
          .lr = 0.1,
          .seed = 3};
}

TEST(Uploads, MappedPayloadsAreReleasedWhileTheyAreSummed) {
  constexpr int64_t kMiB = 1 << 20;
  const testing::TemporaryFolder folder;
  std::vector<ClientUpdate> updates;
  const std::vector<std::string> sites{"first", "second", "third"};  // three sites with 40 MiB for each of two clients
  for (const int64_t id : {0, 1}) {
    ClientUpdate whole = update(id, at::zeros({1, 3}), at::zeros({2, 1}));
    for (const auto& site : sites)
      whole.payload.adapters[site] = {.a = at::full({5, kMiB}, 2 + id, at::kFloat), .b = at::zeros({7, 5})};
    whole.payload = testing::mapped(whole.payload, folder.path() / std::to_string(id));
    updates.push_back(std::move(whole));
  }
  release_mapped_pages();
  int64_t most_kib = 0;
  for (const auto& site : sites) {
    const auto mean = Uploads(updates).mean(site, &lora::LoraFactors::a, std::vector{0.25, 0.75});
    EXPECT_TRUE(mean.eq(2.75).all().item<bool>()) << site;
    most_kib = std::max(most_kib, testing::resident_kib(folder.path()));
  }
  EXPECT_GT(most_kib, 39 * 1024) << "a sum of less than 64 MiB lets nothing go";
  EXPECT_LT(most_kib, 64 * 1024);
}

TEST(Methods, RejectsEntriesWithoutAMethodOrWithADuplicateName) {
  EXPECT_THROW(add_method({.name = "empty",
                           .title = "",
                           .paper = "",
                           .family = MethodFamily::kRank,
                           .exact = false,
                           .needs_experts = false}),
               Error);
  EXPECT_THROW(add_method(MethodEntry(find_method("fedit"))), Error);
}

TEST(Fedit, AveragesTheFactorsSeparatelyWithTheGivenWeights) {
  const auto sites = one_site();
  const auto method = fedit();
  const auto state = method->initialize(view(sites));
  const RoundView round{.round = 0, .participants = std::vector<ClientProfile>(2), .weights = {0.25, 0.75}};
  const std::vector<ClientUpdate> updates{
      update(0, at::tensor({1.f, 2.f, 4.f}).view({1, 3}), at::tensor({1.f, 0.f}).view({2, 1})),
      update(1, at::tensor({3.f, -2.f, 0.f}).view({1, 3}), at::tensor({0.f, 4.f}).view({2, 1}))};
  const auto next = method->aggregate(view(sites), state, round, updates);
  const auto& mean = next.global.adapters.at(kSite);
  EXPECT_TRUE(mean.a.equal(at::tensor({2.5f, -1.f, 1.f}).view({1, 3}))) << mean.a;
  EXPECT_TRUE(mean.b.equal(at::tensor({0.25f, 3.f}).view({2, 1}))) << mean.b;
}

TEST(Fedit, AChangeOfTheBaseIsSentOnceAndNotCarriedOn) {
  const auto sites = one_site();
  const auto method = fedit();
  auto state = method->initialize(view(sites));
  state.global.base_delta[kSite] = {.a = at::ones({1, 3}), .b = at::ones({2, 1})};
  EXPECT_TRUE(method->broadcast(state, {}, {}).base_delta.at(kSite).a.equal(at::ones({1, 3})));
  const RoundView round{.round = 1, .participants = std::vector<ClientProfile>(1), .weights = {1.0}};
  const std::vector<ClientUpdate> updates{update(0, at::ones({1, 3}), at::ones({2, 1}))};
  EXPECT_TRUE(method->aggregate(view(sites), state, round, updates).global.base_delta.empty());
}

TEST(AddBaseDelta, LeavesOutDeltasOfRankZeroAndRefusesHalfOfOne) {
  ServerState state;
  state.global.base_delta["none"] = {.a = at::ones({0, 3}), .b = at::ones({2, 0})};
  state.global.base_delta[kSite] = {.a = at::ones({1, 3}), .b = at::ones({2, 1})};
  add_base_delta(state, lora::TransportDtype::kFloat32);
  EXPECT_EQ(state.global.base_delta.size(), 1u);
  EXPECT_EQ(state.common.base_change.size(), 1u);
  EXPECT_TRUE(state.common.base_change.at(kSite).b.equal(at::ones({2, 1})));
  state.global.base_delta[kSite].b = at::Tensor();
  EXPECT_EQ(testing::refusal([&] { add_base_delta(state, lora::TransportDtype::kFloat32); }),
            "[shape] the change of the base at " + kSite + " lacks A or B");
}

// The smaller side of the weight is 2.
TEST(FirstBaseChange, AnAdapterOfAHigherRankThanTheWeightBecomesItsProduct) {
  const auto sites = one_site();
  at::manual_seed(3);
  const lora::AdapterState start{{kSite, {.a = at::randn({5, 3}), .b = at::randn({2, 5}), .scaling = 0.5}}};
  auto server = view(sites);
  server.start = &start;
  for (const auto* name : {"flora", "florist"}) {
    const auto state = find_method(name).make(config::Table::parse("", "test"))->initialize(server);
    EXPECT_EQ(state.common.base_change.at(kSite).rank(), 2) << name;
    const auto whole = whole_adapter(state).at(kSite);
    EXPECT_TRUE(at::allclose(lora::delta_weight(whole), lora::delta_weight(start.at(kSite)), 1e-5, 1e-6)) << name;
  }
}

TEST(Fedit, PrepareCopiesTheBroadcast) {
  const auto sites = one_site();
  const auto method = fedit();
  const auto state = method->initialize(view(sites));
  const ClientProfile client{.id = 4, .budget = 1, .top_k = 0, .rank = 1, .examples = 5, .trains = true};
  TensorMap memory;
  const ClientView mine{
      .client = client, .sites = sites, .common = {}, .scale = {}, .round = 0, .seed = 3, .memory = memory};
  const auto download = method->broadcast(state, client, {});
  const auto before = download.adapters.at(kSite).b.clone();
  auto setup = method->prepare(download, mine);
  setup.adapters.at(kSite).b.add_(1);
  EXPECT_TRUE(download.adapters.at(kSite).b.equal(before));
}

TEST(Aggregate, ErrorsNameTheClientWithAMissingSite) {
  const auto sites = one_site();
  const auto method = fedit();
  const auto state = method->initialize(view(sites));
  const RoundView round{.round = 0, .participants = std::vector<ClientProfile>(1), .weights = {1.0}};
  std::vector<ClientUpdate> updates(1);
  updates[0].client.id = 7;
  try {
    method->aggregate(view(sites), state, round, updates);
    FAIL() << "an upload without its site was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kShape);
    EXPECT_NE(std::string(error.what()).find("client 7 did not send " + kSite), std::string::npos) << error.what();
  }
}

TEST(CheckCountable, MoreTokensThanInt32HoldsAreNotUploaded) {
  namespace world = testing::ub_smoe;
  constexpr int64_t kLimit = int64_t{1} << 31;
  const auto client = world::client(6, 1);
  for (const auto* name : {"a3smoe", "ub-smoe"}) {
    const auto method = find_method(name).make(config::Table::parse("", "test"));
    const auto sent = method->broadcast(method->initialize(world::server()), client, world::round_of({1}));
    const world::Client local(*method, sent, client);
    const auto upload = [&](int64_t tokens) {
      return method->upload(local.download, local.setup, world::routing({tokens, 0, 0, 0}, tokens), local.view);
    };
    const auto most = upload(kLimit - 1);
    EXPECT_EQ(most.extras.at(world::kLayer + ".tokens").item<int64_t>(), kLimit - 1) << name;
    EXPECT_EQ(most.extras.at(world::kLayer + ".counts")[0].item<int64_t>(), kLimit - 1) << name;
    EXPECT_EQ(testing::refusal([&] { upload(kLimit); }),
              "[data] client 6 routed 2147483648 tokens in a round, allowed: below 2^31")
        << name;
  }
}

TEST(Metrics, TensorMetricsCountAfterRead) {
  Metrics metrics;
  metrics.add("x", 1, 1);
  metrics.add("x", at::scalar_tensor(4.0f));
  metrics.add_sum("y", at::scalar_tensor(6.0), at::scalar_tensor(4, at::kLong));
  metrics.add_sum("nothing", at::scalar_tensor(0.0), at::scalar_tensor(0.0));
  EXPECT_EQ(metrics.means().at("x"), 1);
  const std::vector<at::Tensor> others{at::ones({1}), at::scalar_tensor(2.5, at::kDouble)};
  EXPECT_EQ(metrics.read(others), (std::vector{1.0, 2.5}));
  EXPECT_TRUE(metrics.read().empty());
  EXPECT_EQ(metrics.means(), (std::map<std::string, double>{{"x", 2.5}, {"y", 1.5}}));
}

TEST(Metrics, AreWeightedMeans) {
  Metrics metrics;
  metrics.add("x", 1, 1);
  metrics.add("x", 4, 2);
  EXPECT_DOUBLE_EQ(metrics.means().at("x"), 3);
}

TEST(FindMethod, ListsTheKnownNames) {
  try {
    find_method("fedavg");
    FAIL() << "an unknown method was found";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("fedit"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace evenkeel::methods
