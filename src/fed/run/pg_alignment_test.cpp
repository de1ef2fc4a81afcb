#include "fed/run/pg_alignment.h"

#include <ATen/ATen.h>

#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

class PgAlignmentTest : public testing::SmallRun {
 protected:
  /// Returns a state in which both A and B have gradients.
  static methods::ServerState moved_state(Experiment& e) {
    auto state = beginning(e).state;
    at::manual_seed(5);
    for (auto& [site, factors] : state.global.adapters) factors.b = 0.3 * at::randn(factors.b.sizes());
    return state;
  }
  /// Returns few tokens, so that some experts are not used.
  static std::vector<data::Example> rows_of(Experiment& e) {
    auto row = e.fabric.shards.examples[0].at(0);
    const auto begin = std::max<int64_t>(0, row.first_target - 2);
    row.ids.erase(row.ids.begin(), row.ids.begin() + begin);
    row.first_target -= begin;
    return {row};
  }
  /// Sets every pseudo-gradient to `scale` times the task loss's gradient at `top_k` experts per token.
  static void point(Experiment& e, methods::ServerState& state, const std::vector<data::Example>& rows, int64_t top_k,
                    double scale) {
    auto setup = setup_at(e, state, 1.0);
    setup.router.top_k = top_k;
    for (auto& [site, factors] : setup.adapters)
      for (auto* tensor : {&factors.a, &factors.b}) {
        *tensor = tensor->detach().clone().requires_grad_(true);
        tensor->mutable_grad() = at::zeros_like(*tensor);
      }
    const std::vector<const data::Example*> batch{&rows[0]};
    const auto loss = e.fabric.context.model->loss(
        data::pack(batch),
        {.adapters = &setup.adapters, .base_change = &state.common.base_change, .router = setup.router});
    (loss.sum / static_cast<double>(loss.count)).backward();
    for (const auto& [site, factors] : setup.adapters) {
      if (factors.a.dim() != 3) continue;
      state.global.extras[site + ".pseudo_grad_a"] = scale * factors.a.grad();
      state.global.extras[site + ".pseudo_grad_b"] = scale * factors.b.grad();
    }
  }
};

TEST_F(PgAlignmentTest, IsOneAlongTheGradientAndMinusOneAgainstIt) {
  auto e = experiment("ub-smoe");
  const auto rows = rows_of(e);
  for (const auto& [mode, top_k] : {std::pair{AlignMode::kKmax, 4}, std::pair{AlignMode::kDense, 7}})
    for (const double scale : {2.5, -0.5}) {
      auto state = moved_state(e);
      point(e, state, rows, top_k, scale);
      const auto found = pg_alignment(e, state, rows, mode);
      ASSERT_EQ(found.size(), 3u);
      EXPECT_EQ(found.back().layer, "all");
      EXPECT_GT(found.back().compared, 0) << "the rows reach every expert: the test shows nothing";
      EXPECT_EQ(found.back().compared, found[0].compared + found[1].compared);
      for (const auto& layer : found) {
        EXPECT_EQ(layer.zero, 0);
        ASSERT_EQ(layer.cosine.has_value(), layer.compared > 0);
        EXPECT_NEAR(layer.cosine.value_or(scale > 0 ? 1 : -1), scale > 0 ? 1 : -1, 1e-6);
      }
    }
}

TEST_F(PgAlignmentTest, GradientsDependOnExpertsPerToken) {
  auto e = experiment("ub-smoe");
  const auto rows = rows_of(e);
  auto state = moved_state(e);
  point(e, state, rows, 7, 1.0);
  const auto kmax = pg_alignment(e, state, rows, AlignMode::kKmax),
             dense = pg_alignment(e, state, rows, AlignMode::kDense);
  EXPECT_EQ(kmax.back().idle, dense.back().idle);
  EXPECT_EQ(dense.back().compared, dense.back().idle) << "all experts per token reach all experts";
  EXPECT_LT(*kmax.back().cosine, 1 - 1e-4);
}

TEST_F(PgAlignmentTest, CosinesAreReportedWithThoseOfShuffledExperts) {
  auto e = experiment("ub-smoe");
  const auto rows = rows_of(e);
  auto state = moved_state(e);
  point(e, state, rows, 7, 2.5);
  const auto found = pg_alignment(e, state, rows, AlignMode::kDense);
  ASSERT_TRUE(found.back().shuffled.has_value()) << "no layer compares two experts: the test shows nothing";
  for (const auto& layer : found) {
    if (layer.layer != "all") {
      ASSERT_EQ(layer.shuffled.has_value(), layer.compared >= 2) << layer.layer;
    }
    if (!layer.shuffled) continue;
    EXPECT_LE(layer.shuffled->least, layer.shuffled->mean);
    EXPECT_LE(layer.shuffled->mean, layer.shuffled->most);
    EXPECT_LT(layer.shuffled->most, *layer.cosine) << "every expert's own gradient fits it best";
  }
  const auto again = pg_alignment(e, state, rows, AlignMode::kDense);
  EXPECT_EQ(again.back().shuffled->mean, found.back().shuffled->mean) << "drawn by the seed";
}

TEST_F(PgAlignmentTest, ShufflingEqualPseudoGradientsKeepsTheCosine) {
  auto e = experiment("ub-smoe");
  const auto rows = rows_of(e);
  auto state = moved_state(e);
  point(e, state, rows, 7, 1.0);
  for (auto& [name, tensor] : state.global.extras)
    if (name.find(".pseudo_grad_") != std::string::npos) tensor = tensor.mean(0, true).expand_as(tensor).contiguous();
  const auto all = pg_alignment(e, state, rows, AlignMode::kDense).back();
  ASSERT_TRUE(all.shuffled.has_value());
  EXPECT_NEAR(all.shuffled->least, *all.cosine, 1e-9);
  EXPECT_NEAR(all.shuffled->most, *all.cosine, 1e-9);
}

TEST_F(PgAlignmentTest, PseudoGradientsAreZeroBeforeTheFirstRound) {
  auto e = experiment("ub-smoe");
  const auto found = pg_alignment(e, beginning(e).state, rows_of(e), AlignMode::kDense);
  EXPECT_EQ(found.back().zero, found.back().compared);
  EXPECT_FALSE(found.back().cosine.has_value());
}

TEST_F(PgAlignmentTest, AMethodWithoutPseudoGradientsIsRefused) {
  auto e = experiment("fedit");
  EXPECT_THROW(pg_alignment(e, beginning(e).state, rows_of(e), AlignMode::kKmax), Error);
}

}  // namespace
}  // namespace evenkeel::fed
