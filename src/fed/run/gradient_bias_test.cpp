#include "fed/run/gradient_bias.h"

#include <ATen/ATen.h>

#include <set>

#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

/// A model with 7 experts per layer and K_max = 4; evaluation at K = 1 and 4.
class GradientBiasTest : public testing::SmallRun {
 protected:
  /// Returns a state in which both A and B have gradients.
  static methods::ServerState moved_state(Experiment& e) {
    auto state = beginning(e).state;
    at::manual_seed(5);
    for (auto& [site, factors] : state.global.adapters) factors.b = 0.3 * at::randn(factors.b.sizes());
    return state;
  }
  static std::vector<data::Example> rows_of(Experiment& e) {
    auto rows = e.fabric.shards.examples[0];
    rows.resize(5);
    return rows;
  }
  static const GradientBias& find(const std::vector<GradientBias>& all, GradientOf of, std::string_view layer,
                                  int64_t k) {
    for (const auto& one : all)
      if (one.of == of && one.layer == layer && one.top_k == k) return one;
    throw std::runtime_error("no such measure");
  }
};

TEST_F(GradientBiasTest, IsZeroWithAllExpertsPerTokenAndNotWithFewer) {
  auto e = experiment("fedit");
  const auto found = gradient_bias(e, moved_state(e), rows_of(e));
  ASSERT_EQ(found.size(), 2u * 4 * 2) << "two kinds of gradient, two layers, their median and all, two K";
  for (const auto& one : found) {
    if (one.top_k == 4) {
      EXPECT_EQ(one.value.bias, 0) << one.layer;
      EXPECT_NEAR(*one.value.cosine, 1, 1e-12) << one.layer;
    } else {
      EXPECT_GT(*one.value.bias, 1e-3) << one.layer;
      EXPECT_LT(*one.value.cosine, 0.9999) << one.layer;
    }
    EXPECT_NEAR(*one.value.bias, *one.value.bias_active + *one.value.bias_idle, 1e-12);
    EXPECT_GT(*one.value.predicted, 0);
    EXPECT_LE(*one.value.predicted, 1);
  }
}

TEST_F(GradientBiasTest, ASingleBatchHasTheSameBiasAsAllItsRows) {
  auto e = experiment("fedit");
  auto rows = rows_of(e);
  rows.resize(2);  // train.batch_size
  const auto found = gradient_bias(e, moved_state(e), rows);
  for (const auto* layer : {"model.layers.0.mlp", "model.layers.1.mlp", "median", "all"})
    for (const auto& measure : train::kBiasMeasures) {
      const auto &all = find(found, GradientOf::kAllRows, layer, 1), &batch = find(found, GradientOf::kBatch, layer, 1);
      EXPECT_NEAR(*(all.value.*measure.value), *(batch.value.*measure.value), 1e-9) << measure.name;
      EXPECT_TRUE(all.left_out.empty());
    }
}

TEST_F(GradientBiasTest, LeavingABlockOutIsTheMeasureOfTheOtherRows) {
  auto e = experiment("fedit");
  const auto state = moved_state(e);
  const auto rows = rows_of(e);  // batches of 2, 2 and 1 rows
  const auto all = gradient_bias(e, state, rows), first_two = gradient_bias(e, state, std::span(rows).first(4));
  for (const auto of : {GradientOf::kAllRows, GradientOf::kBatch}) {
    const auto& one = find(all, of, "all", 1);
    ASSERT_EQ(one.left_out.size(), 3u);
    for (const auto& measure : train::kBiasMeasures)
      EXPECT_NEAR(*(one.left_out[2].*measure.value), *(find(first_two, of, "all", 1).value.*measure.value), 1e-9)
          << measure.name;
  }
}

TEST_F(GradientBiasTest, EveryMethodIsMeasuredOnTheFactorsThatItTrains) {
  for (const auto* method :
       {"fedit", "ub-smoe", "a3smoe", "smoe-llb", "hetlora", "flexlora", "fedex-lora", "ffa-lora"}) {
    auto e = experiment(method);
    const auto found = gradient_bias(e, moved_state(e), rows_of(e));
    EXPECT_EQ(find(found, GradientOf::kAllRows, "all", 4).value.bias, 0) << method;
    EXPECT_GT(*find(found, GradientOf::kAllRows, "all", 1).value.bias, 1e-3) << method;
  }
}

TEST_F(GradientBiasTest, AModelWithoutAdaptedExpertsIsRefused) {
  auto e = experiment("fedit", Purpose::kTrain, "lora.targets=[\"q_proj\"]");
  EXPECT_THROW(gradient_bias(e, beginning(e).state, rows_of(e)), Error);
}

}  // namespace
}  // namespace evenkeel::fed
