#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <cmath>

#include "nn/compute/testing.h"

namespace evenkeel::train {
namespace {

OptimizerConfig paper() { return {}; }

at::Tensor leaf(const at::Tensor& value) { return value.clone().requires_grad_(true); }

/// AdamW as in Algorithm 2 of the paper, for one value at a time in float64.
struct ScalarAdamW {
  double theta = 0, m = 0, v = 0;
  int64_t t = 0;
  void step(double g, const OptimizerConfig& c) {
    ++t;
    theta -= c.lr * c.weight_decay * theta;
    m = c.betas[0] * m + (1 - c.betas[0]) * g;
    v = c.betas[1] * v + (1 - c.betas[1]) * g * g;
    const double m_hat = m / (1 - std::pow(c.betas[0], t)), v_hat = v / (1 - std::pow(c.betas[1], t));
    theta -= c.lr * m_hat / (std::sqrt(v_hat) + c.eps);
  }
};

TEST(AdamW, EqualsTorchAdamWOver100Steps) {
  at::manual_seed(1);
  auto config = paper();
  config.lr = 3e-3, config.weight_decay = 0.1;
  const std::vector<at::Tensor> start{at::randn({6, 4, 3}), at::randn({5, 7})};
  std::vector<at::Tensor> ours, theirs;
  for (const auto& tensor : start) ours.push_back(leaf(tensor)), theirs.push_back(leaf(tensor));
  AdamW mine(ours, config);
  torch::optim::AdamW peer(theirs, torch::optim::AdamWOptions(config.lr)
                                       .betas({config.betas[0], config.betas[1]})
                                       .eps(config.eps)
                                       .weight_decay(config.weight_decay));
  for (int64_t step = 0; step < 100; ++step) {
    for (size_t i = 0; i < start.size(); ++i) {
      const auto grad = at::randn_like(start[i]) * (step % 10 == 0 ? 1e-6 : 0.3);
      ours[i].mutable_grad() = grad;
      theirs[i].mutable_grad() = grad.clone();
    }
    mine.step();
    peer.step();
    for (size_t i = 0; i < start.size(); ++i) ASSERT_TRUE(ours[i].allclose(theirs[i], 1e-6, 1e-6)) << "step " << step;
  }
}

TEST(AdamW, EqualsTheFormulaInFloat64Over100Steps) {
  at::manual_seed(2);
  auto config = paper();
  config.lr = 1e-2, config.weight_decay = 0.3;
  const auto start = at::randn({3, 5}, at::kDouble);
  const auto tensor = leaf(start);
  std::vector<ScalarAdamW> scalars(15);
  for (int64_t i = 0; i < 15; ++i) scalars[static_cast<size_t>(i)].theta = start.flatten()[i].item<double>();
  AdamW adamw({tensor}, config);
  for (int64_t step = 0; step < 100; ++step) {
    const auto grad = at::randn({3, 5}, at::kDouble);
    tensor.mutable_grad() = grad;
    adamw.step();
    for (int64_t i = 0; i < 15; ++i) scalars[static_cast<size_t>(i)].step(grad.flatten()[i].item<double>(), config);
  }
  for (int64_t i = 0; i < 15; ++i)
    EXPECT_NEAR(tensor.detach().flatten()[i].item<double>(), scalars[static_cast<size_t>(i)].theta, 1e-12);
}

// With a constant gradient for 47 steps, compares displacement / (47 eta) for gradients near eps.
TEST(AdamW, StepDoesNotDependOnTheSizeOfAConstantGradient) {
  auto config = paper();
  config.weight_decay = 0;
  for (const auto& [g, expected] : {std::pair{1e-2, 0.9990}, {1e-3, 0.9901}, {1e-4, 0.9091}, {1e-5, 0.5}}) {
    const auto tensor = leaf(at::zeros({2, 3}, at::kDouble));
    AdamW adamw({tensor}, config);
    tensor.mutable_grad() = at::full({2, 3}, g, at::kDouble);
    for (int64_t step = 0; step < 47; ++step) adamw.step();
    EXPECT_NEAR(tensor.detach()[0][0].item<double>() / (47 * config.lr), -expected, 5e-5) << g;
  }
}

TEST(AdamW, ParametersWithoutGradientDoNotChange) {
  const auto with = leaf(at::ones({2, 3})), without = leaf(at::ones({3, 2}));
  AdamW adamw({with, without}, paper());
  with.mutable_grad() = at::ones({2, 3});
  adamw.step();
  EXPECT_FALSE(with.detach().equal(at::ones({2, 3})));
  EXPECT_TRUE(without.detach().equal(at::ones({3, 2})));
}

TEST(AdamW, MovesOnlyActiveSlicesEachWithItsOwnStepCount) {
  at::manual_seed(3);
  const auto start = at::randn({3, 2, 4});
  const auto stacked = leaf(start);
  const std::vector<at::Tensor> alone{leaf(start[0]), leaf(start[1]), leaf(start[2])};
  AdamW mine({stacked}, paper());
  std::vector<AdamW> each;
  for (const auto& tensor : alone) each.emplace_back(std::vector{tensor}, paper());
  for (int64_t step = 0; step < 6; ++step) {
    const auto grad = at::randn({3, 2, 4});
    stacked.mutable_grad() = grad;
    const auto active = at::tensor({1, static_cast<int>(step % 2), 0}, at::kInt).to(at::kBool);
    mine.step_active({active});
    for (int64_t i = 0; i < 3; ++i) {
      alone[static_cast<size_t>(i)].mutable_grad() = grad[i];
      if (active[i].item<bool>()) each[static_cast<size_t>(i)].step();
    }
  }
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(stacked.detach()[i].equal(alone[static_cast<size_t>(i)].detach())) << i;
  EXPECT_TRUE(stacked.detach()[2].equal(start[2]));
}

// 7 x 10,003 numbers are more than one piece and not a multiple of a vector.
TEST(AdamW, BitsDoNotDependOnThreadsAndZeroingIsOptional) {
  at::manual_seed(5);
  const auto start = at::randn({7, 10'003}), grad = at::randn({7, 10'003});
  const int before = at::get_num_threads();
  std::vector<at::Tensor> moved;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const auto tensor = leaf(start);
    AdamW adamw({tensor}, paper());
    tensor.mutable_grad() = grad.clone();
    adamw.step(-1, Gradients::kKept);
    EXPECT_TRUE(tensor.grad().equal(grad));
    adamw.step(-1, Gradients::kZeroed);
    EXPECT_EQ(tensor.grad().abs().max().item<float>(), 0);
    moved.push_back(tensor.detach());
  }
  at::set_num_threads(before);
  EXPECT_TRUE(moved[0].equal(moved[1]) && moved[0].equal(moved[2]));
  const auto stacked = leaf(start);
  AdamW adamw({stacked}, paper());
  stacked.mutable_grad() = grad.clone();
  adamw.step_active({at::tensor({1, 0, 1, 0, 0, 0, 1}).to(at::kBool)}, Gradients::kZeroed);
  EXPECT_EQ(stacked.grad().abs().max().item<float>(), 0) << "those that did not move too";
}

/// Returns two parameters, the first of them a stack, after some steps with an engine.
std::vector<at::Tensor> after_steps(nn::EngineKind engine, bool skips_idle, at::ScalarType type) {
  at::manual_seed(11);
  auto config = paper();
  config.lr = 3e-3, config.weight_decay = 0.1;
  const std::vector<at::Tensor> tensors{leaf(at::randn({4, 3, 5}, type)), leaf(at::randn({6, 2}, type))};
  AdamW adamw(tensors, config, engine);
  for (const auto& tensor : tensors) tensor.mutable_grad() = at::zeros_like(tensor);
  for (int64_t step = 0; step < 25; ++step) {
    for (const auto& tensor : tensors) tensor.mutable_grad().add_(at::randn(tensor.sizes(), type) * 0.3);
    const auto active = at::tensor({1, static_cast<int>(step % 2), 0, static_cast<int>(step > 5)}).to(at::kBool);
    if (skips_idle)
      adamw.step_active({active, {}}, Gradients::kZeroed);
    else
      adamw.step(-1, Gradients::kZeroed);
    for (const auto& tensor : tensors) EXPECT_EQ(tensor.grad().abs().max().item<double>(), 0);
  }
  std::vector<at::Tensor> all;
  for (const auto& tensor : tensors) all.push_back(tensor.detach());
  for (const auto& [name, tensor] : adamw.state()) all.push_back(tensor);
  return all;
}

TEST(AdamW, OperatorsEqualTheKernelUpToRounding) {
  for (const bool skips_idle : {false, true})
    for (const auto type : {at::kFloat, at::kDouble}) {
      const auto kernel = after_steps(nn::EngineKind::kKernels, skips_idle, type);
      const auto operators = after_steps(nn::EngineKind::kAten, skips_idle, type);
      ASSERT_EQ(kernel.size(), operators.size());
      const double close = type == at::kDouble ? 1e-12 : 2e-6;
      for (size_t i = 0; i < kernel.size(); ++i)
        EXPECT_TRUE(operators[i].allclose(kernel[i], close, close)) << i << ' ' << skips_idle << ' ' << type;
    }
}

TEST(AdamW, OperatorsDoNotChangeInactiveSlices) {
  at::manual_seed(12);
  const auto start = at::randn({3, 2, 4});
  const auto stack = leaf(start);
  AdamW adamw({stack}, paper(), nn::EngineKind::kAten);
  for (int64_t step = 0; step < 4; ++step) {
    stack.mutable_grad() = at::randn({3, 2, 4});
    adamw.step_active({at::tensor({1, 0, 1}).to(at::kBool)});
  }
  EXPECT_TRUE(stack.detach()[1].equal(start[1]));
  EXPECT_EQ(adamw.state().at("exp_avg.0")[1].abs().max().item<float>(), 0);
  EXPECT_TRUE(adamw.state().at("step.0").equal(at::tensor({4.f, 0.f, 4.f})));
}

/// Stacks whose slices have their own step counts need few operators each, and the rest is done once for all.
TEST(AdamW, AFurtherStackAddsSevenOperators) {
  const auto operators_of = [](size_t stacks) {
    std::vector<at::Tensor> tensors, active;
    for (size_t i = 0; i < stacks; ++i) {
      tensors.push_back(leaf(at::randn({4, 3, 5})));
      tensors.back().mutable_grad() = at::randn({4, 3, 5});
      active.push_back(at::tensor({1, 0, 1, 1}).to(at::kBool));
    }
    AdamW adamw(tensors, paper(), nn::EngineKind::kAten);
    adamw.step_active(active, Gradients::kZeroed);
    const testing::OperatorCount operators;
    adamw.step_active(active, Gradients::kZeroed);
    return testing::total(testing::OperatorCount::take());
  };
  const int64_t one = operators_of(1), four = operators_of(4);
  EXPECT_LE(four - one, 3 * 7);
  EXPECT_LE(one, 7 + 26);
}

TEST(AdamW, ContinuesFromASavedState) {
  at::manual_seed(4);
  const auto start = at::randn({4, 3});
  const auto whole = leaf(start), parts = leaf(start);
  std::vector<at::Tensor> grads;
  for (int64_t step = 0; step < 8; ++step) grads.push_back(at::randn({4, 3}));
  AdamW uninterrupted({whole}, paper());
  for (const auto& grad : grads) whole.mutable_grad() = grad, uninterrupted.step();
  TensorMap saved;
  {
    AdamW first({parts}, paper());
    for (size_t i = 0; i < 3; ++i) parts.mutable_grad() = grads[i], first.step();
    saved = first.state();
  }
  AdamW second({parts}, paper());
  second.load_state(saved);
  for (size_t i = 3; i < grads.size(); ++i) parts.mutable_grad() = grads[i], second.step();
  EXPECT_TRUE(parts.detach().equal(whole.detach()));
  EXPECT_THROW(second.load_state({}), Error);
}

TEST(OptimizerConfig, ErrorsNameTheKeyAndTheRange) {
  const auto table = config::Table::parse("[train.optimizer]\nlr = 1e-3\nbetas = [0.9, 1.0]\n", "run.toml");
  try {
    config::read<OptimizerConfig>(table.table("train").table("optimizer"));
    FAIL() << "a beta of 1 was accepted";
  } catch (const Error& error) {
    for (const std::string word : {"train.optimizer.betas", "[0, 1)", "run.toml, line 3"})
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace evenkeel::train
