#include "train/sgd.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "train/make_optimizer.h"

namespace evenkeel::train {
namespace {

at::Tensor trained(const at::Tensor& value) { return value.clone().requires_grad_(true); }

OptimizerConfig sgd(double momentum, double weight_decay) {
  return {.name = OptimizerName::kSgd, .lr = 3e-2, .weight_decay = weight_decay, .momentum = momentum};
}

TEST(Sgd, EqualsTorchSgdOver60StepsBitForBit) {
  for (const double momentum : {0.0, 0.9})
    for (const double decay : {0.0, 0.1}) {
      at::manual_seed(1);
      const auto config = sgd(momentum, decay);
      const std::vector<at::Tensor> start{at::randn({6, 4, 3}), at::randn({5, 7}), at::randn({3}, at::kDouble)};
      std::vector<at::Tensor> ours, theirs;
      for (const auto& tensor : start) ours.push_back(trained(tensor)), theirs.push_back(trained(tensor));
      const auto mine = make_optimizer(ours, config);
      torch::optim::SGD peer(theirs, torch::optim::SGDOptions(config.lr).momentum(momentum).weight_decay(decay));
      for (int64_t step = 0; step < 60; ++step) {
        for (size_t i = 0; i < start.size(); ++i) {
          ours[i].mutable_grad() = at::randn_like(start[i]);
          theirs[i].mutable_grad() = ours[i].grad().clone();
        }
        const double lr = config.lr / static_cast<double>(1 + step / 20);
        mine->step(lr, Gradients::kZeroed);
        static_cast<torch::optim::SGDOptions&>(peer.param_groups()[0].options()).lr(lr);
        peer.step();
        for (size_t i = 0; i < start.size(); ++i) {
          ASSERT_TRUE(ours[i].equal(theirs[i])) << momentum << ' ' << decay << ' ' << step;
          ASSERT_EQ(ours[i].grad().abs().max().item<double>(), 0);
        }
      }
    }
}

TEST(Sgd, ParametersWithoutGradientDoNotChange) {
  const auto with = trained(at::ones({2, 3})), without = trained(at::ones({3, 2}));
  Sgd optimizer({with, without}, sgd(0.5, 0.1));
  with.mutable_grad() = at::ones({2, 3});
  optimizer.step();
  EXPECT_FALSE(with.detach().equal(at::ones({2, 3})));
  EXPECT_TRUE(without.detach().equal(at::ones({3, 2})));
  EXPECT_TRUE(with.grad().equal(at::ones({2, 3}))) << "kept unless asked";
}

TEST(Sgd, MovesOnlyActiveSlicesEachWithItsOwnMomentum) {
  for (const double momentum : {0.0, 0.8}) {
    at::manual_seed(3);
    const auto config = sgd(momentum, 0.2);
    const auto start = at::randn({3, 2, 4});
    const auto stacked = trained(start), whole = trained(at::randn({5, 2}));
    const auto whole_alone = trained(whole.detach());
    const std::vector<at::Tensor> alone{trained(start[0]), trained(start[1]), trained(start[2])};
    Sgd mine({stacked, whole}, config), other({whole_alone}, config);
    std::vector<Sgd> each;
    for (const auto& tensor : alone) each.emplace_back(std::vector{tensor}, config);
    for (int64_t step = 0; step < 6; ++step) {
      const auto grad = at::randn({3, 2, 4});
      stacked.mutable_grad() = grad.clone();
      whole.mutable_grad() = at::randn({5, 2});
      whole_alone.mutable_grad() = whole.grad().clone();
      const auto active = at::tensor({1, static_cast<int>(step % 2), 0}, at::kInt).to(at::kBool);
      mine.step_active({active, {}}, Gradients::kZeroed);
      other.step();
      for (int64_t i = 0; i < 3; ++i) {
        alone[static_cast<size_t>(i)].mutable_grad() = grad[i];
        if (active[i].item<bool>()) each[static_cast<size_t>(i)].step();
      }
      EXPECT_EQ(stacked.grad().abs().max().item<float>(), 0) << "of slices that did not move too";
    }
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_TRUE(stacked.detach()[i].equal(alone[static_cast<size_t>(i)].detach())) << momentum << ' ' << i;
    EXPECT_TRUE(stacked.detach()[2].equal(start[2]));
    EXPECT_TRUE(whole.detach().equal(whole_alone.detach()));
  }
}

TEST(Sgd, ContinuesFromASavedState) {
  at::manual_seed(4);
  const auto start = at::randn({4, 3});
  const auto whole = trained(start), parts = trained(start);
  std::vector<at::Tensor> grads;
  for (int64_t step = 0; step < 8; ++step) grads.push_back(at::randn({4, 3}));
  Sgd uninterrupted({whole}, sgd(0.9, 0));
  for (const auto& grad : grads) whole.mutable_grad() = grad, uninterrupted.step();
  TensorMap saved;
  {
    Sgd first({parts}, sgd(0.9, 0));
    for (size_t i = 0; i < 3; ++i) parts.mutable_grad() = grads[i], first.step();
    saved = first.state();
  }
  Sgd second({parts}, sgd(0.9, 0));
  second.load_state(saved);
  for (size_t i = 3; i < grads.size(); ++i) parts.mutable_grad() = grads[i], second.step();
  EXPECT_TRUE(parts.detach().equal(whole.detach()));
  EXPECT_THROW(second.load_state({}), Error);
  EXPECT_TRUE(Sgd({parts}, sgd(0, 0)).state().empty());
}

std::string error_of(const std::string& keys) {
  const auto table = config::Table::parse("[optimizer]\n" + keys, "run.toml");
  OptimizerConfig read;
  try {
    config::read<OptimizerConfig>(table.table("optimizer"), read);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(OptimizerConfig, RefusesKeysOfTheOtherOptimiser) {
  EXPECT_EQ(error_of("name = \"sgd\"\nmomentum = 0.9"), "no error");
  EXPECT_EQ(error_of("name = \"sgd\"\nbetas = [0.9, 0.95]\neps = 1e-5"), "no error") << "as a resolved config has them";
  const auto expect = [](const std::string& keys, const std::string& part) {
    EXPECT_NE(error_of(keys).find(part), std::string::npos) << error_of(keys);
  };
  expect("name = \"sgd\"\nbetas = [0.8, 0.95]", "optimizer.betas is [0.8, 0.95], allowed: no value, because name is");
  expect("name = \"sgd\"\neps = 1e-3", "optimizer.eps is 0.001, allowed: no value, because name is");
  expect("momentum = 0.5", "optimizer.momentum is 0.5, allowed: no value, because name is");
  expect("name = \"sgd\"\nmomentum = 1.0", "optimizer.momentum is 1, allowed: a number in [0, 1)");
  expect("name = \"adam\"", "optimizer.name is \"adam\", allowed: adamw, sgd");
}

}  // namespace
}  // namespace evenkeel::train
