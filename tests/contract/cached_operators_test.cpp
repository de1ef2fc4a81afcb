// Counts the operators and the waits of generation and of answers on a simulated GPU (tests/gpu), where each operator
// costs a launch. Counts of models of two depths give the operators of one layer and the rest.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "gpu_operators.h"
#include "models/testing.h"
#include "nn/engines/engine_of.h"
#include "scoring/continuations.h"
#include "scoring/generation.h"

namespace evenkeel::cached_operators {
namespace {

constexpr int64_t kLayers = 16;  // of OLMoE-1B-7B

/// A model on a simulated GPU, and its passes.
class World {
 public:
  World(int64_t layers, bool adapters) {
    const Json shape{{"hidden_size", 32},
                     {"intermediate_size", 16},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 4},
                     {"num_hidden_layers", layers},
                     {"vocab_size", 37},
                     {"max_position_embeddings", 64}};
    models::BaseStorage storage(models::BaseDtype::kBFloat16);
    storage.engine = nn::EngineKind::kAten;
    storage.device = c10::Device(c10::kCUDA, 0);
    model_ = testing::make_model("olmoe", storage, shape);
    at::globalContext().setDeterministicAlgorithms(true, false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
    if (!adapters) return;
    adapters_ = testing::random_adapters(*model_, 8, at::kFloat);
    for (auto& [site, factors] : adapters_)
      factors.a = factors.a.to(model_->device()), factors.b = factors.b.to(model_->device());
  }
  ~World() { at::globalContext().setDeterministicAlgorithms(false, false); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  models::ForwardOptions options() const {
    return {.adapters = adapters_.empty() ? nullptr : &adapters_,
            .compute = {.engine = nn::EngineKind::kAten, .inner = at::kBFloat16}};
  }
  const models::CausalLm& model() const { return *model_; }

 private:
  std::unique_ptr<models::CausalLm> model_;
  lora::AdapterState adapters_;
};

/// Returns prompts of 3 to 5 tokens.
std::vector<scoring::TokenIds> prompts_of(int64_t count) {
  std::vector<scoring::TokenIds> prompts;
  for (int64_t b = 0; b < count; ++b) {
    prompts.push_back({1 + b % 7, 3, 5 + b % 11});
    for (int64_t i = 0; i < b % 3; ++i) prompts.back().push_back(2 + i);
  }
  return prompts;
}

/// The operators and waits of a pass over 32 prompts, or of a pass for each of several parts of it.
struct PassCounts {
  int64_t layer = 0;  ///< operators of one layer
  int64_t rest = 0;   ///< operators that do not depend on the number of layers
  int64_t waits = 0;
  int64_t of(int64_t layers) const { return layers * layer + rest; }
};

using Work = std::function<void()>;

testing::GpuCounts counts_of(const Work& work) {
  const auto before = testing::gpu_counts();
  work();
  const auto after = testing::gpu_counts();
  return {after.operators - before.operators, after.waits - before.waits};
}

/// Which passes are counted.
enum class Cached { kPrompts, kAnswers, kStep, kReplayedStep };

/// Counts passes over `prompts` prompts.
testing::GpuCounts counts_at(int64_t layers, Cached pass, bool adapters, int64_t prompts) {
  const World world(layers, adapters);
  const auto& model = world.model();
  auto forward = model.prepared(world.options());
  const auto graphs = nn::engine_of(nn::EngineKind::kAten).graphs();
  if (pass == Cached::kReplayedStep) forward.graphs = graphs.get();
  const auto texts = prompts_of(prompts);
  const auto run = [&] { return scoring::run_prompts(model, forward, texts, {.max_new_tokens = 8}); };
  if (pass == Cached::kPrompts) return counts_of([&] { run(); });
  if (pass == Cached::kAnswers) {
    // The answers share their first two tokens, which are one pass; what follows is another.
    const std::vector<std::vector<scoring::TokenIds>> answers(texts.size(), {{1, 2, 3, 4}, {1, 2, 5, 6}, {1, 2}});
    auto prompted = run();
    return counts_of([&] { scoring::continuation_logprobs(model, forward, prompted, answers); });
  }
  const auto generated = [&](int64_t tokens) {
    auto prompted = run();
    return counts_of([&] {
      scoring::generate(model, forward, std::move(prompted), {.max_new_tokens = tokens, .eos = scoring::TokenIds{}});
    });
  };
  if (pass == Cached::kReplayedStep) generated(4);  // one by one, then recorded
  const auto more = generated(5), fewer = generated(3);
  return {(more.operators - fewer.operators) / 2, (more.waits - fewer.waits) / 2};
}

PassCounts counts_of(Cached pass, bool adapters, int64_t prompts) {
  const auto two = counts_at(2, pass, adapters, prompts), five = counts_at(5, pass, adapters, prompts);
  const int64_t layer = (five.operators - two.operators) / 3;
  return {layer, two.operators - 2 * layer, two.waits};
}

/// The most operators and waits that passes have had so far. A change that needs fewer lowers them.
struct Limits {
  const char* name;
  Cached pass;
  bool adapters;
  PassCounts most;
};

class CachedOperators : public ::testing::TestWithParam<Limits> {
 protected:
  void SetUp() override {
    if (!testing::gpu_counts_file()) GTEST_SKIP() << "needs a simulated GPU: ctest -L gpu";
  }
};

TEST_P(CachedOperators, AreNoMoreThanBeforeAndAsManyForMorePrompts) {
  const auto& [name, pass, adapters, most] = GetParam();
  const auto counts = counts_of(pass, adapters, 32);
  RecordProperty("layer", static_cast<int>(counts.layer));
  RecordProperty("rest", static_cast<int>(counts.rest));
  EXPECT_LE(counts.layer, most.layer);
  EXPECT_LE(counts.rest, most.rest);
  EXPECT_LE(counts.waits, most.waits);
  const auto of_half = counts_of(pass, adapters, 16);
  EXPECT_EQ(counts.of(kLayers), of_half.of(kLayers)) << "of 16 prompts";
}

INSTANTIATE_TEST_SUITE_P(Passes, CachedOperators,
                         ::testing::Values(Limits{"prompts", Cached::kPrompts, false, {32, 22, 0}},
                                           Limits{"answers", Cached::kAnswers, false, {64, 33, 2}},
                                           Limits{"step", Cached::kStep, false, {32, 11, 1}},
                                           Limits{"prompts_with_adapters", Cached::kPrompts, true, {49, 22, 0}},
                                           Limits{"answers_with_adapters", Cached::kAnswers, true, {98, 33, 2}},
                                           Limits{"step_with_adapters", Cached::kStep, true, {49, 11, 1}},
                                           Limits{"replayed_step", Cached::kReplayedStep, true, {0, 11, 1}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace evenkeel::cached_operators
