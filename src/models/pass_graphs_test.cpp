// Padded passes, and passes that are recorded and replayed (nn/engine/pass_graphs.h), for every family. Replays need a
// GPU, which tests/gpu simulates: EVENKEEL_TEST_DEVICE.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "data/padding.h"
#include "models/testing.h"
#include "nn/engines/engine_of.h"
#include "nn/moe/balance_losses.h"

namespace evenkeel::models {
namespace {

using testing::apart_by_norm;
using testing::test_device;

constexpr int64_t kStep = 64;

class PassGraphs : public ::testing::TestWithParam<std::string_view> {};

std::vector<std::string_view> all_families() {
  std::vector<std::string_view> names;
  for (const auto& entry : model_families()) names.push_back(entry.family);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Engines, PassGraphs, ::testing::ValuesIn(all_families()),
                         [](const auto& info) { return std::string(info.param); });

/// Returns two micro-batches of three sequences of random ids, which begin alike if they share rows.
data::PackedBatch batch_of(uint64_t seed, bool alike) {
  at::manual_seed(seed);
  std::vector<data::Example> examples;
  for (int64_t i = 0; i < 6; ++i) {
    data::Example example{.ids = alike ? std::vector<int64_t>{3, 1, 4, 1, 5} : std::vector<int64_t>{}};
    const int64_t length = 2 + at::randint(1, 7, {1}, at::kLong).item<int64_t>();
    const auto ids = at::randint(0, 11, {length}, at::kLong);
    example.ids.insert(example.ids.end(), ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + length);
    example.first_target = alike ? 5 : 1;
    examples.push_back(std::move(example));
  }
  return alike ? data::pack_shared(examples, 3) : data::pack(examples, 3);
}

struct Outcome {
  std::vector<at::Tensor> losses, counts, logits, gradients;
};

/// Returns sizes that the grouped products' alignment takes; others wait for the host.
Json aligned_shape(std::string_view family) {
  Json shape{{"hidden_size", 32}, {"intermediate_size", 16}, {"num_attention_heads", 4}, {"initializer_range", 0.15}};
  constexpr const char* kExpertWidth = "moe_intermediate_size";
  if (testing::entry_of(family).example.find(kExpertWidth) != std::string_view::npos) shape[kExpertWidth] = 16;
  return shape;
}

/// A model with adapters and router options that are trained.
struct Trainer {
  std::unique_ptr<CausalLm> model;
  nn::Compute compute{.engine = nn::EngineKind::kAten};
  lora::AdapterState adapters, change;
  nn::RouterOptions router;
  std::vector<at::Tensor> leaves;

  Trainer(std::string_view family, BaseDtype stored, at::ScalarType inner, const nn::RouterOptions& options = {},
          int64_t rank = 5)
      : router(options) {
    BaseStorage storage(stored);
    storage.engine = nn::EngineKind::kAten;
    storage.device = test_device();
    model = testing::make_model(family, storage, aligned_shape(family));
    compute.inner = inner;
    const auto type = stored == BaseDtype::kFloat64 ? at::kDouble : at::kFloat;
    adapters = testing::random_adapters(*model, rank, type);
    change = testing::random_adapters(*model, 3, type);
    for (auto& [site, factors] : change) move(factors, false), factors.scaling = 1;
    for (auto& [site, factors] : adapters) move(factors, true);
    for (const auto& layer : router.num_candidates > 0 ? model->spec().moe_layers : std::vector<std::string>())
      train(router.modulation[layer] =
                testing::random_tensor({model->spec().num_experts}, 500, type).to(test_device()));
    if (!router.modulation.empty())
      train(router.output_scale = at::full({1}, 1.25, at::device(test_device()).dtype(type)));
  }

  void move(lora::LoraFactors& factors, bool trained) {
    for (auto* factor : {&factors.a, &factors.b}) {
      *factor = factor->to(test_device());
      if (trained) train(*factor);
    }
  }
  void train(at::Tensor& leaf) {
    leaf.requires_grad_(true).mutable_grad() = at::zeros_like(leaf);
    leaves.push_back(leaf);
  }

  /// Runs a forward and backward pass. \param balanced  whether the loss reads the routing
  Outcome pass(const data::PackedBatch& batch, nn::PassGraphs* graphs, bool balanced = true) {
    std::vector<nn::RoutingByLayer> routing(batch.micro_batch_ends().size());
    const auto losses = model->losses(batch, {.adapters = &adapters,
                                              .base_change = &change,
                                              .router = router,
                                              .compute = compute,
                                              .routing = routing,
                                              .graphs = graphs});
    Outcome outcome;
    at::Tensor total;
    for (size_t i = 0; i < losses.size(); ++i) {
      auto own = losses[i].sum / static_cast<double>(losses[i].count);
      if (balanced && !routing[i].empty())
        own = own + nn::load_balance_loss(routing[i]) + nn::router_z_loss(routing[i]);
      total = total.defined() ? total + own : own;
      outcome.losses.push_back(losses[i].sum.detach().cpu());
      for (const auto& [layer, stats] : routing[i]) {
        outcome.counts.push_back(stats.counts.cpu());
        outcome.logits.push_back(stats.router_logits.detach().cpu());
      }
    }
    total.backward();
    for (const auto& leaf : leaves) outcome.gradients.push_back(leaf.grad().cpu()), leaf.grad().zero_();
    return outcome;
  }
  Outcome padded_pass(uint64_t seed, bool alike, nn::PassGraphs& graphs, bool balanced = true) {
    return pass(data::padded(batch_of(seed, alike), kStep), &graphs, balanced);
  }
};

std::unique_ptr<nn::PassGraphs> new_graphs() { return nn::engine_of(nn::EngineKind::kAten).graphs(); }

void expect_equal(const Outcome& one, const Outcome& other) {
  const auto expect = [](const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& y, const char* what) {
    ASSERT_EQ(x.size(), y.size()) << what;
    for (size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(at::equal(x[i], y[i])) << what << ' ' << i;
  };
  expect(one.losses, other.losses, "loss");
  expect(one.counts, other.counts, "counts");
  expect(one.logits, other.logits, "logits");
  expect(one.gradients, other.gradients, "gradient");
}

TEST_P(PassGraphs, PaddingChangesNothingInFloat64) {
  for (const bool alike : {false, true}) {
    Trainer trainer(GetParam(), BaseDtype::kFloat64, at::kFloat);
    const auto batch = batch_of(3, alike);
    ASSERT_EQ(batch.rows_T.defined(), alike);
    const auto plain = trainer.pass(batch, nullptr), padded = trainer.pass(data::padded(batch, kStep), nullptr);
    ASSERT_EQ(plain.counts.size(), padded.counts.size());
    for (size_t i = 0; i < plain.counts.size(); ++i) {
      EXPECT_TRUE(at::equal(plain.counts[i], padded.counts[i])) << i;
      EXPECT_LT(apart_by_norm(padded.logits[i], plain.logits[i]), 1e-11) << i;
    }
    for (size_t i = 0; i < plain.losses.size(); ++i)
      EXPECT_LT(apart_by_norm(padded.losses[i], plain.losses[i]), 1e-11) << i;
    for (size_t i = 0; i < plain.gradients.size(); ++i)
      EXPECT_LT(apart_by_norm(padded.gradients[i], plain.gradients[i]), 1e-11) << "gradient " << i;
  }
}

/// Skips where nothing can be recorded.
#define NEEDS_A_GPU() \
  if (test_device().is_cpu()) GTEST_SKIP() << "needs a GPU: ctest -L gpu"

TEST_P(PassGraphs, AReplayHasTheBitsOfTheOperators) {
  NEEDS_A_GPU();
  for (const auto& router : {nn::RouterOptions{}, nn::RouterOptions{.top_k = 2, .num_candidates = 4}}) {
    Trainer trainer(GetParam(), BaseDtype::kBFloat16, at::kBFloat16, router);
    const auto graphs = new_graphs();
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const bool balanced = seed % 2 == 0;
      const auto eager = trainer.padded_pass(seed, false, *new_graphs(), balanced),
                 other = trainer.padded_pass(seed, false, *graphs, balanced);
      expect_equal(eager, other);
    }
    EXPECT_EQ(graphs->counts().recorded, 1);
    EXPECT_EQ(graphs->counts().replayed, 3);
    EXPECT_EQ(graphs->counts().eager, 1);
  }
}

TEST_P(PassGraphs, RecordingsOfSeveralKindsShareMemory) {
  NEEDS_A_GPU();
  Trainer trainer(GetParam(), BaseDtype::kBFloat16, at::kBFloat16);
  const bool sparse = !trainer.model->spec().moe_layers.empty();
  const auto graphs = new_graphs();
  for (uint64_t seed = 1; seed <= 4; ++seed)
    for (const bool alike : {false, true})
      for (const int64_t top_k : {1, 3}) {
        trainer.router.top_k = sparse ? top_k : 0;
        const auto eager = trainer.padded_pass(seed, alike, *new_graphs()),
                   other = trainer.padded_pass(seed, alike, *graphs);
        expect_equal(eager, other);
      }
  EXPECT_EQ(graphs->counts().recorded, sparse ? 4 : 2);
}

TEST_P(PassGraphs, AnotherClientIsNoReplayOfTheFirst) {
  NEEDS_A_GPU();
  Trainer one(GetParam(), BaseDtype::kBFloat16, at::kBFloat16), other(GetParam(), BaseDtype::kBFloat16, at::kBFloat16);
  const auto graphs = new_graphs();
  for (uint64_t seed = 1; seed <= 3; ++seed) one.padded_pass(seed, false, *graphs);
  for (const auto& leaf : other.leaves) leaf.detach().mul_(0.5);
  for (uint64_t seed = 4; seed <= 6; ++seed)
    expect_equal(other.padded_pass(seed, false, *new_graphs()), other.padded_pass(seed, false, *graphs));
  EXPECT_EQ(graphs->counts().recorded, 2);
}

TEST(PassGraphsTestDevice, ATrainingPassFreesThePlacesOfGenerationWhetherStepsWereRecordedOrNot) {
  Trainer trainer("olmoe", BaseDtype::kFloat64, at::kFloat);
  const auto graphs = new_graphs();
  graphs->arena().memory({.layers = 2, .heads = 2, .width = 8, .device = test_device()}, 4, 64);
  EXPECT_EQ(graphs->arena().bytes(), 4 * (2 * 2 * 2 * 8) * (4 * 64));
  trainer.padded_pass(3, false, *graphs);
  EXPECT_EQ(graphs->arena().bytes(), 0);
}

}  // namespace
}  // namespace evenkeel::models
