// Generation with recorded passes (nn/engine/pass_graphs.h), for every family. Recordings need a GPU, which tests/gpu
// simulates: EVENKEEL_TEST_DEVICE.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "models/testing.h"
#include "nn/engines/engine_of.h"
#include "scoring/generation.h"

namespace evenkeel::scoring {
namespace {

using testing::test_device;

constexpr int64_t kCapacity = 16;

/// Returns sizes that the grouped products' alignment takes; others wait for the host.
Json aligned_shape(std::string_view family) {
  Json shape{{"hidden_size", 32}, {"intermediate_size", 16}, {"num_attention_heads", 4}, {"initializer_range", 0.15}};
  constexpr const char* kExpertWidth = "moe_intermediate_size";
  if (testing::entry_of(family).example.find(kExpertWidth) != std::string_view::npos) shape[kExpertWidth] = 16;
  return shape;
}

std::unique_ptr<nn::PassGraphs> new_graphs() { return nn::engine_of(nn::EngineKind::kAten).graphs(); }

/// A model with an adapter on the test device.
struct Generator {
  std::unique_ptr<models::CausalLm> model;
  lora::AdapterState adapters;
  models::ForwardOptions forward;

  explicit Generator(std::string_view family) {
    models::BaseStorage storage(models::BaseDtype::kBFloat16);
    storage.engine = nn::EngineKind::kAten;
    storage.device = test_device();
    model = testing::make_model(family, storage, aligned_shape(family));
    adapters = testing::random_adapters(*model, 5, at::kFloat);
    for (auto& [site, factors] : adapters)
      factors.a = factors.a.to(test_device()), factors.b = factors.b.to(test_device());
    forward =
        model->prepared({.adapters = &adapters, .compute = {.engine = nn::EngineKind::kAten, .inner = at::kBFloat16}});
  }
  models::ForwardOptions with(nn::PassGraphs* graphs) const {
    auto options = forward;
    options.graphs = graphs;
    return options;
  }
  /// Returns the cache of three prompts in four places.
  nn::KvCache prompts(nn::KvArena& arena) const {
    const std::vector<TokenIds> texts{{5, 9, 3, 2}, {4}, {1, 3, 3, 8, 10}};
    auto cache = run_prompts(*model, forward, texts, {.max_new_tokens = 8}).cache;
    cache.move_to_places(arena.memory(cache.shape(), 4, kCapacity), kCapacity);
    return cache;
  }
  at::Tensor step(nn::KvCache& cache, const TokenIds& tokens, nn::PassGraphs* graphs) const {
    std::vector<TokenIds> pieces;
    for (const int64_t token : tokens) pieces.push_back({token});
    return extend(*model, with(graphs), cache, pieces).cpu();
  }
};

/// Skips where nothing can be recorded.
#define NEEDS_A_GPU() \
  if (test_device().is_cpu()) GTEST_SKIP() << "needs a GPU: ctest -L gpu"

class RecordedGenerationOnTestDevice : public ::testing::TestWithParam<std::string_view> {};

std::vector<std::string_view> all_families() {
  std::vector<std::string_view> names;
  for (const auto& entry : models::model_families()) names.push_back(entry.family);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Families, RecordedGenerationOnTestDevice, ::testing::ValuesIn(all_families()),
                         [](const auto& info) { return std::string(info.param); });

// Passes of new PassGraphs are computed operator by operator, at the same padded sizes.
TEST_P(RecordedGenerationOnTestDevice, AReplayHasTheBitsOfTheOperators) {
  NEEDS_A_GPU();
  const at::NoGradGuard no_grad;
  const Generator of(GetParam());
  const auto graphs = new_graphs();
  nn::KvArena own;
  auto recorded = of.prompts(graphs->arena()), eager = of.prompts(own);
  const auto expect_equal_step = [&](const TokenIds& tokens) {
    const auto other = new_graphs();
    EXPECT_TRUE(at::equal(of.step(recorded, tokens, graphs.get()), of.step(eager, tokens, other.get())));
    EXPECT_EQ(other->counts().eager, 1);
  };
  for (int64_t step = 0; step < 4; ++step) expect_equal_step({1 + step, 7, 3});
  EXPECT_EQ(graphs->counts().recorded, 1);
  EXPECT_EQ(graphs->counts().replayed, 3);
  const std::vector<int64_t> kept{2, 0};  // what is left has a size of its own
  recorded.select(kept), eager.select(kept);
  for (int64_t step = 0; step < 3; ++step) expect_equal_step({9, 2 + step});
  EXPECT_EQ(graphs->counts().recorded, 2);
  EXPECT_EQ(graphs->counts().replayed, 5);
  EXPECT_EQ(graphs->counts().eager, 2);
}

TEST(RecordedGenerationTestDevice, TheTextsAreThoseOfOperatorsAlone) {
  NEEDS_A_GPU();
  const Generator of("olmoe");
  const auto graphs = new_graphs();
  const GenerationOptions options{.max_new_tokens = 6, .eos = TokenIds{}};
  for (const auto& texts : {std::vector<TokenIds>{{5, 9, 3}, {4}, {1, 3, 3, 8}}, std::vector<TokenIds>{{7, 7}, {2}}})
    EXPECT_EQ(generate(*of.model, of.with(graphs.get()), texts, options),
              generate(*of.model, of.with(nullptr), texts, options));
  EXPECT_EQ(graphs->counts().recorded, 2);
}

TEST(RecordedGenerationTestDevice, ThePlacesTakeWhatIsCountedForThem) {
  NEEDS_A_GPU();
  const Generator of("olmoe");
  const auto graphs = new_graphs();
  const GenerationOptions options{.max_new_tokens = 6, .eos = TokenIds{}};
  const int64_t token = kv_shape(*of.model, nn::KvType::kExact, of.forward.compute).token_bytes();
  const auto bytes_after = [&](const std::vector<TokenIds>& texts) {
    PromptSizes sizes;
    for (const auto& text : texts) sizes.add(std::ssize(text));
    generate(*of.model, of.with(graphs.get()), texts, options);
    const int64_t bytes = graphs->arena().bytes();
    const auto tokens = cached_tokens(sizes, options.max_new_tokens, 1, test_device(), of.forward.compute.engine);
    EXPECT_LE(sizes.tokens * token + bytes, tokens * token);
    return bytes;
  };
  EXPECT_EQ(bytes_after({{5, 9, 3}, {4, 4}, {1, 3, 3}}), 4 * 64 * token);
  EXPECT_EQ(bytes_after({TokenIds(25, 7), {2}, {3}, {4}, {5}}), 0) << "unequal sequences stay where they are";
}

TEST(RecordedGenerationTestDevice, ACacheThatDoesNotFitTheGpuIsRefusedWithItsMemory) {
  NEEDS_A_GPU();
  const Generator of("olmoe");
  auto run = run_prompts(*of.model, of.forward, std::vector<TokenIds>{{5, 9, 3}, {4}}, {.max_new_tokens = 1});
  const GenerationOptions options{.max_new_tokens = int64_t{1} << 28, .beams = 1024};
  const auto text = testing::refusal([&] { generate(*of.model, of.forward, std::move(run), options); });
  EXPECT_TRUE(text.starts_with("[config] on cuda:0 generation needs about ")) << text;
  EXPECT_NE(text.find("(free on cuda:0"), std::string::npos) << text;
}

TEST(RecordedGenerationTestDevice, OtherFactorsAreNoReplayOfTheFirst) {
  NEEDS_A_GPU();
  const at::NoGradGuard no_grad;
  const Generator of("gemma2");
  const auto graphs = new_graphs();
  nn::KvArena own;
  auto halved = of.adapters;
  for (auto& [site, factors] : halved) factors.b = factors.b * 0.5;
  auto first = of.prompts(graphs->arena());
  for (int64_t step = 0; step < 3; ++step) of.step(first, {1, 2, 3}, graphs.get());
  const auto others = of.model->prepared({.adapters = &halved, .compute = of.forward.compute});
  auto second = of.prompts(graphs->arena()), eager = of.prompts(own);
  for (int64_t step = 0; step < 3; ++step) {
    auto with = others, without = others;
    const auto fresh = new_graphs();
    with.graphs = graphs.get(), without.graphs = fresh.get();
    const std::vector<TokenIds> pieces{{4}, {step}, {6}};
    EXPECT_TRUE(at::equal(extend(*of.model, with, second, pieces), extend(*of.model, without, eager, pieces)));
  }
  EXPECT_EQ(graphs->counts().recorded, 2);
}

// This also holds for factors that each pass converts anew.
TEST(RecordedGenerationTestDevice, WhatCannotBeRecordedIsComputedByOperators) {
  NEEDS_A_GPU();
  const at::NoGradGuard no_grad;
  const Generator of("olmoe");
  const auto graphs = new_graphs(), refused = new_graphs();
  nn::KvArena own, other;
  auto one = of.prompts(graphs->arena()), two = of.prompts(own), three = of.prompts(other);
  ::setenv("EVENKEEL_MOST_GRAPHS", "0", 1);
  for (int64_t step = 0; step < 4; ++step) {
    const TokenIds tokens{1, 2, 3 + step};
    auto unprepared = of.with(graphs.get());
    unprepared.factors = nullptr;
    const std::vector<TokenIds> pieces{{1}, {2}, {3 + step}};
    const auto converted = extend(*of.model, unprepared, one, pieces).cpu();
    const auto failed = of.step(two, tokens, refused.get()), eager = of.step(three, tokens, new_graphs().get());
    EXPECT_TRUE(at::equal(converted, eager));
    EXPECT_TRUE(at::equal(failed, eager));
  }
  ::unsetenv("EVENKEEL_MOST_GRAPHS");
  for (const auto* each : {graphs.get(), refused.get()}) {
    EXPECT_EQ(each->counts().recorded, 0);
    EXPECT_EQ(each->counts().eager, 4);
  }
}

}  // namespace
}  // namespace evenkeel::scoring
