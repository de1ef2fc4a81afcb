// Counts the operators that engine aten calls in a training step. They are counted on a processor, where norms and
// attention consist of more operators than on a GPU.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/testing.h"
#include "nn/compute/testing.h"

namespace evenkeel::models {
namespace {

using Counts = std::map<std::string, int64_t>;

/// Makes deterministic algorithms visible to the count, as on a GPU.
class AsOnAGpu {
 public:
  AsOnAGpu() {
    at::globalContext().setDeterministicAlgorithms(true, false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  ~AsOnAGpu() { at::globalContext().setDeterministicAlgorithms(false, false); }
  AsOnAGpu(const AsOnAGpu&) = delete;
  AsOnAGpu& operator=(const AsOnAGpu&) = delete;
};

struct StepCounts {
  Counts forward, backward;
};

/// \param alike  whether the examples begin with the same tokens, which share rows
data::PackedBatch four_examples(bool alike) {
  if (alike)
    return data::pack_shared(
        std::vector<data::Example>{
            {.ids = {3, 1, 4, 1, 5, 9}}, {.ids = {3, 1, 4}}, {.ids = {3, 1, 4, 1, 8}}, {.ids = {3, 1, 4, 0}}},
        2);
  return data::pack(
      std::vector<data::Example>{
          {.ids = {3, 1, 4, 1, 5, 9}}, {.ids = {2, 7, 1}}, {.ids = {8, 2, 8, 1, 8}}, {.ids = {6, 1, 8, 0}}},
      2);
}

/// Counts a pass over two micro-batches with adapters on attention and feed-forward blocks.
StepCounts counts_of_step(std::string_view family, bool alike, int64_t layers) {
  BaseStorage storage(BaseDtype::kBFloat16);
  storage.engine = nn::EngineKind::kAten;
  const auto model = testing::make_model(
      family, storage,
      {{"hidden_size", 32}, {"intermediate_size", 16}, {"num_attention_heads", 4}, {"num_hidden_layers", layers}});
  const std::vector<std::string> targets{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  auto adapters = lora::make_adapters(model->sites(targets), 5, 1.5, 3);
  for (auto& [site, factors] : adapters)
    for (auto* factor : {&factors.a, &factors.b})
      factor->set_requires_grad(true).mutable_grad() = at::zeros_like(*factor);
  const auto batch = four_examples(alike);
  EXPECT_EQ(batch.rows_T.defined(), alike);
  std::vector<nn::RoutingByLayer> routing(batch.micro_batch_ends().size());
  const AsOnAGpu deterministic;
  const testing::OperatorCount operators;
  const auto losses = model->losses(batch, {.adapters = &adapters,
                                            .compute = {.engine = nn::EngineKind::kAten, .inner = at::kBFloat16},
                                            .routing = routing});
  StepCounts counts;
  const auto loss = losses[0].sum + losses[1].sum;
  counts.forward = testing::OperatorCount::take();
  loss.backward();
  counts.backward = testing::OperatorCount::take();
  return counts;
}

/// Returns the operators that a further layer adds.
Counts of_one_layer(const Counts& of_three, const Counts& of_two) {
  Counts counts;
  for (const auto& [name, count] : of_three) {
    const auto before = of_two.find(name);
    counts[name] = count - (before == of_two.end() ? 0 : before->second);
  }
  std::erase_if(counts, [](const auto& entry) { return entry.second == 0; });
  return counts;
}

StepCounts of_one_layer(std::string_view family, bool alike) {
  const auto three = counts_of_step(family, alike, 3), two = counts_of_step(family, alike, 2);
  return {of_one_layer(three.forward, two.forward), of_one_layer(three.backward, two.backward)};
}

std::string table(const Counts& counts) {
  std::string text;
  for (const auto& [name, count] : counts) text += concat("  ", name, " ", count, "\n");
  return text;
}

struct Limits {
  std::string_view family;
  bool alike;
  int64_t forward, backward;
};

class Operators : public ::testing::TestWithParam<Limits> {};

TEST_P(Operators, OfALayerAreNoMoreThanBefore) {
  const auto& limits = GetParam();
  const auto counts = of_one_layer(limits.family, limits.alike);
  RecordProperty("forward", static_cast<int>(testing::total(counts.forward)));
  RecordProperty("backward", static_cast<int>(testing::total(counts.backward)));
  EXPECT_LE(testing::total(counts.forward), limits.forward) << table(counts.forward);
  EXPECT_LE(testing::total(counts.backward), limits.backward) << table(counts.backward);
  RecordProperty("forward_launches", static_cast<int>(testing::launches(counts.forward)));
  RecordProperty("backward_launches", static_cast<int>(testing::launches(counts.backward)));
}

INSTANTIATE_TEST_SUITE_P(Families, Operators,
                         ::testing::Values(Limits{"olmoe", false, 80, 124}, Limits{"olmo", false, 46, 73},
                                           Limits{"olmoe", true, 85, 128}, Limits{"olmo", true, 50, 77}),
                         [](const auto& info) {
                           return concat(info.param.family, info.param.alike ? "_with_shared_rows" : "");
                         });

}  // namespace
}  // namespace evenkeel::models
