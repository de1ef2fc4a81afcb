#include "train/distillation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/testing.h"

namespace evenkeel::train {
namespace {

/// A model that is a head alone. It counts how often its head is asked for, which logits() does once.
class HeadOnly final : public models::CausalLm {
 public:
  HeadOnly(int64_t vocabulary, int64_t hidden)
      : head_(testing::random_tensor({vocabulary, hidden}, 3, at::kFloat).mul_(0.5)) {
    spec_.vocab_size = vocabulary;
    spec_.hidden_size = hidden;
  }

  const models::ModelSpec& spec() const override { return spec_; }
  at::Tensor hidden(const data::PackedBatch&, const models::ForwardOptions&) const override { return {}; }
  const nn::FrozenWeight& head() const override {
    ++asked_;
    return head_;
  }
  const lora::Sites& all_sites() const override { return sites_; }
  TensorMap parameters() const override { return {}; }
  const std::string& config_json() const override { return config_; }
  int asked() const { return asked_; }

 private:
  models::ModelSpec spec_;
  nn::FrozenWeight head_;
  lora::Sites sites_;
  std::string config_;
  mutable int asked_ = 0;
};

/// The sum of divergences, and the gradient of their weighted sum.
struct Divergence {
  at::Tensor sum, gradient_ND;
};

/// Computes them from all logits at once.
Divergence whole_divergence(const models::CausalLm& model, const DistillationRows& rows, double temperature) {
  const auto logprobs_NV = [&](const at::Tensor& hidden_ND) {
    return (model.logits(hidden_ND, {}) / temperature).log_softmax(1);
  };
  const auto student_ND = rows.student_ND.detach().requires_grad_(true);
  const auto p_NV = logprobs_NV(rows.teacher_ND), q_NV = logprobs_NV(student_ND);
  const auto divergence_N = temperature * temperature * (p_NV.exp() * (p_NV - q_NV)).sum(1);
  (divergence_N * rows.weights_N).sum().backward();
  return {divergence_N.detach().sum(), student_ND.grad()};
}

// 64 MiB hold the logits of 83 rows of this vocabulary; 90 rows are two chunks.
TEST(Distillation, ChunksOfLogitsGiveTheDivergenceAndGradientOfAllLogits) {
  constexpr int64_t kVocabulary = 200'000, kRows = 90, kHidden = 8;
  constexpr double kTemperature = 1.5;
  const HeadOnly model(kVocabulary, kHidden);
  const auto leaf_ND = testing::random_tensor({kRows, kHidden}, 4, at::kFloat).requires_grad_(true);
  const DistillationRows rows{.teacher_ND = testing::random_tensor({kRows, kHidden}, 5, at::kFloat),
                              .student_ND = leaf_ND * 2,
                              .weights_N = testing::random_tensor({kRows}, 6, at::kFloat).abs()};
  const auto sum = backward_of_divergence(model, {}, rows, kTemperature);
  EXPECT_EQ(model.asked(), 4) << "logits of teacher and student for each of two chunks";
  const auto whole = whole_divergence(model, rows, kTemperature);
  EXPECT_FALSE(sum.requires_grad());
  EXPECT_GT(whole.sum.item<double>(), kRows * 0.01);
  EXPECT_NEAR(sum.item<double>(), whole.sum.item<double>(), 1e-5 * whole.sum.item<double>());
  EXPECT_LT(testing::apart_by_norm(leaf_ND.grad(), whole.gradient_ND * 2), 1e-5);
}

}  // namespace
}  // namespace evenkeel::train
