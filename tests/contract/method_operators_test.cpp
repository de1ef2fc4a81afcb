// Counts the operators of a training step of every method on a simulated GPU (tests/gpu), where each costs a launch. A
// step has two micro-batches in one pass. Counts of models of two depths give the operators of one layer and the rest.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu_operators.h"
#include "models/testing.h"
#include "tiny_federation.h"
#include "train/residence.h"
#include "train/step_graphs.h"

namespace evenkeel::method_operators {
namespace {

constexpr int64_t kLayers = 16;                          // of OLMoE-1B-7B
constexpr int64_t kRows = 4;                             // of a client, and of a step
const std::vector<int64_t> kInstruction{3, 1, 4, 1, 5};  // with which all rows begin

std::unique_ptr<models::CausalLm> model_of(int64_t layers, const models::BaseStorage& storage) {
  const Json shape{{"hidden_size", 32},        {"intermediate_size", 16},     {"num_attention_heads", 4},
                   {"num_key_value_heads", 4}, {"num_hidden_layers", layers}, {"vocab_size", 37}};
  return testing::make_model("olmoe", storage, shape);
}

/// A client of K = 2 on a simulated GPU, and a server on the processor.
struct World : TinyFederation {
  explicit World(int64_t layers) {
    model = model_of(layers, models::BaseDtype::kFloat32);
    sites = model->all_sites();
    models::BaseStorage storage(models::BaseDtype::kBFloat16);
    storage.engine = nn::EngineKind::kAten;
    storage.device = c10::Device(c10::kCUDA, 0);
    on_gpu = model_of(layers, storage);
    shards[1].resize(kRows);
    for (auto& row : shards[1]) {
      row.ids.insert(row.ids.begin(), kInstruction.begin(), kInstruction.end());
      row.first_target += static_cast<int64_t>(kInstruction.size());
    }
    training.compute = {.engine = nn::EngineKind::kAten, .inner = at::kBFloat16};
  }

  /// Returns the operators of a round of `steps` steps, over the same rows in each.
  int64_t operators_of(const methods::FederatedMethod& method, int64_t steps) {
    const auto& client = clients[1];
    if (!begun) begun = method.initialize(server());
    const auto& state = *begun;
    const auto download = method.broadcast(state, client, round(0, {1}));
    training.local_epochs = static_cast<double>(steps);
    if (!training.residence)
      training.residence = std::make_shared<train::Residence>(
          train::make_residence(state.common, on_gpu->device(), StorageCopies::to(on_gpu->device())));
    const int64_t before = testing::gpu_counts().operators;
    const auto result =
        train::train_locally(*on_gpu, method, {download, view(client, 0, state.common), shards[1]}, training);
    EXPECT_EQ(result.steps, steps);
    return testing::gpu_counts().operators - before;
  }

  std::unique_ptr<models::CausalLm> on_gpu;
  std::optional<methods::ServerState> begun;  // all clients are of one round
};

/// The operators of a training step.
struct StepOperators {
  int64_t layer = 0;  ///< of one layer
  int64_t rest = 0;   ///< of what does not depend on the number of layers
  int64_t of(int64_t layers) const { return layers * layer + rest; }
};

StepOperators step_operators(const methods::FederatedMethod& method) {
  const auto at_depth = [&](int64_t layers) {
    World world(layers);
    return (world.operators_of(method, 3) - world.operators_of(method, 1)) / 2;
  };
  const int64_t two = at_depth(2), five = at_depth(5);
  return {(five - two) / 3, two - 2 * ((five - two) / 3)};
}

/// The most operators that a method has had so far. A change that needs fewer lowers them.
const std::map<std::string_view, StepOperators, std::less<>> kMost{
    {"fedit", {149, 46}},    {"ffa-lora", {137, 46}},  {"fedex-lora", {149, 46}}, {"flexlora", {149, 46}},
    {"flora", {149, 46}},    {"florist", {149, 46}},   {"fed-sb", {158, 64}},     {"a3smoe", {149, 46}},
    {"hetlora", {149, 143}}, {"smoe-llb", {157, 140}}, {"ub-smoe", {162, 96}},    {"slimmable-moe", {149, 58}},
};

/// Returns a method at its defaults. The second pass of Slimmable MoE is as many operators again, so it is left out.
std::unique_ptr<methods::FederatedMethod> measured_method(std::string_view name) {
  return make_method(name, name == "slimmable-moe" ? "distillation = 0.0" : "");
}

class MethodOperators : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    if (!testing::gpu_counts_file()) GTEST_SKIP() << "needs a simulated GPU: ctest -L gpu";
  }
};

TEST_P(MethodOperators, OfAStepAreNoMoreThanBeforeAndAboutThoseOfFedIt) {
  const auto step = step_operators(*measured_method(GetParam()));
  RecordProperty("layer", static_cast<int>(step.layer));
  RecordProperty("rest", static_cast<int>(step.rest));
  const auto fedit = GetParam() == "fedit" ? step : step_operators(*make_method("fedit"));
  EXPECT_LE(step.of(kLayers), 1.11 * static_cast<double>(fedit.of(kLayers))) << step.layer << " and " << step.rest;
  const auto most = kMost.find(GetParam());
  ASSERT_NE(most, kMost.end()) << "has no limit yet: {" << step.layer << ", " << step.rest << '}';
  EXPECT_LE(step.layer, most->second.layer);
  EXPECT_LE(step.rest, most->second.rest);
}

/// Returns the operators that the host starts for a step whose passes are replayed.
int64_t replayed_operators(const methods::FederatedMethod& method, int64_t layers) {
  World world(layers);
  world.training.graphs = std::make_shared<train::StepGraphs>(nn::EngineKind::kAten);
  world.operators_of(method, 3);  // one by one, then recorded, then replayed
  const int64_t one = world.operators_of(method, 1), three = world.operators_of(method, 3);
  const auto counts = world.training.graphs->passes().counts();
  EXPECT_EQ(counts.recorded, 1);
  EXPECT_EQ(counts.eager, 1);
  EXPECT_EQ(counts.replayed, 6) << "the second client replays from its first step on";
  return (three - one) / 2;
}

TEST_P(MethodOperators, OfAReplayedStepAreFewAndHardlyGrowWithTheLayers) {
  const auto method = measured_method(GetParam());
  const int64_t two = replayed_operators(*method, 2), five = replayed_operators(*method, 5),
                eager = step_operators(*method).of(kLayers);
  RecordProperty("replayed", static_cast<int>(two + (kLayers - 2) * (five - two) / 3));
  RecordProperty("eager", static_cast<int>(eager));
  EXPECT_LE(five - two, 3 * 6) << "of three layers: the gradients of their router logits, counts, phi";
  EXPECT_LE(two + (kLayers - 2) * (five - two) / 3, eager / 8) << "of " << eager << " at 16 layers";
}

class BaseChangeRecordings : public MethodOperators {};

// The factors of the base's change grow until they are as high as the smaller side of their weight.
TEST_P(BaseChangeRecordings, AreUsedAgainOnceTheChangeOfTheBaseKeepsItsSizes) {
  const auto method = make_method(GetParam());
  World world(2);
  world.training.local_epochs = 3;
  const auto graphs = std::make_shared<train::StepGraphs>(nn::EngineKind::kAten);
  train::KeptMemory memory;
  auto state = method->initialize(world.server());
  const auto trained = [&](int64_t number, const methods::RoundView& round, std::shared_ptr<train::StepGraphs> with) {
    world.training.graphs = std::move(with);
    const auto& client = world.clients[1];
    return train::train_locally(
        *world.on_gpu, *method,
        {method->broadcast(state, client, round), world.view(client, number, state.common), world.shards[1]},
        world.training);
  };
  std::vector<int64_t> recorded;
  for (int64_t number = 0; number < 6; ++number) {
    const auto round = world.round(number);
    world.training.residence =
        std::make_shared<train::Residence>(train::make_residence(state.common, world.on_gpu->device(), memory));
    const auto replayed = trained(number, round, graphs);
    const auto afresh = trained(number, round, std::make_shared<train::StepGraphs>(nn::EngineKind::kAten));
    EXPECT_TRUE(equal(replayed.upload.adapters, afresh.upload.adapters)) << "round " << number;
    recorded.push_back(graphs->passes().counts().recorded);
    const auto on_gpu = world.training;
    world.training.compute = {}, world.training.residence.reset(), world.training.graphs.reset();
    state = world.aggregate(*method, state, round, world.train_all(*method, state, round));
    world.training = on_gpu;
  }
  EXPECT_EQ(recorded[0], 1);
  EXPECT_GT(recorded[1], 1) << "there was no change of the base before";
  EXPECT_EQ(recorded[4], recorded[3]);
  EXPECT_EQ(recorded[5], recorded[3]);
}

INSTANTIATE_TEST_SUITE_P(Methods, BaseChangeRecordings, ::testing::Values("flora", "fedex-lora"),
                         [](const auto& info) { return info.param == "flora" ? "flora" : "fedex_lora"; });

std::vector<std::string_view> method_names() {
  std::vector<std::string_view> names;
  for (const auto& entry : methods::methods()) names.push_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Methods, MethodOperators, ::testing::ValuesIn(method_names()), [](const auto& info) {
  std::string name(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace evenkeel::method_operators
