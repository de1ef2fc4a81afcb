#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "crypto/testing.h"
#include "tiny_federation.h"
#include "train/local_training.h"

namespace evenkeel {
namespace {

std::shared_ptr<const train::PrivateSteps> steps(double noise, double clip, double sampling, double lot,
                                                 const char* key = "round") {
  return std::make_shared<const train::PrivateSteps>(
      train::PrivateSteps{.draws = privacy::ExampleDraws(testing::secret_of(key)),
                          .report = {.noise = noise, .clip = clip, .sampling = sampling},
                          .lot = lot});
}

train::LocalResult trained(const TinyFederation& world, const std::string& name = "fedit") {
  const auto method = make_method(name);
  return world.train(*method, method->initialize(world.server()), world.round(0), world.clients[1]);
}

// All rows in every step, almost no noise, no clipping: the mean of the rows' gradients, as a batch of all rows gives.
TEST(PrivateTraining, WithoutNoiseAndClippingIsTrainingOnAllRows) {
  TinyFederation world;
  const auto rows = static_cast<int64_t>(world.shards[1].size());
  world.training.batch_size = 1, world.training.accumulation = rows, world.training.local_epochs = 4;
  const auto plain = trained(world);
  world.training.privacy = steps(1e-12, 1e6, 1, static_cast<double>(rows));
  const auto priv = trained(world);
  EXPECT_EQ(priv.steps, plain.steps);
  EXPECT_EQ(priv.tokens, plain.tokens);
  EXPECT_NEAR(priv.loss_sum, plain.loss_sum, 1e-3 * plain.loss_sum);
  EXPECT_LT(difference(priv.upload.adapters, plain.upload.adapters), 1e-3);
  ASSERT_TRUE(priv.privacy);
  EXPECT_GT(priv.privacy->signal, 100);
}

/// Lets a round be one step of plain gradient descent with rate 1, which moves the factors by minus its gradient.
void descend(TinyFederation& world) {
  world.training.optimizer.name = train::OptimizerName::kSgd;
  world.training.optimizer.lr = 1, world.training.optimizer.momentum = 0, world.training.optimizer.weight_decay = 0;
  world.training.local_epochs = 1e-9;
}

/// Returns the change of each factor in a round, flat, float64, in the order in which they are trained.
std::vector<at::Tensor> moves(const TinyFederation& world) {
  const auto before = make_method("fedit")->initialize(world.server()).global.adapters;
  const auto after = trained(world).upload.adapters;
  std::vector<at::Tensor> all;
  for (const auto& [site, factors] : after)
    for (const auto factor : {&lora::LoraFactors::a, &lora::LoraFactors::b})
      all.push_back((factors.*factor - before.at(site).*factor).flatten().to(at::kDouble));
  return all;
}

double length(const at::Tensor& change) { return change.norm().item<double>(); }

TEST(PrivateTraining, NoRowMovesTheGradientByMoreThanTheClip) {
  TinyFederation world;
  descend(world);
  world.shards[1].resize(1);
  world.training.privacy = steps(1e-9, 1e-3, 1, 1);
  EXPECT_NEAR(length(at::cat(moves(world))), 1e-3, 1e-7)
      << "one row with a larger gradient moves exactly as far as the clip";
  world.training.privacy = steps(1e-9, 1e-3, 1, 4);
  EXPECT_NEAR(length(at::cat(moves(world))), 1e-3 / 4, 1e-7) << "the sum is divided by the lot, not by the rows drawn";
}

TEST(PrivateTraining, EveryRowOfAStepIsClippedByItself) {
  TinyFederation world;
  descend(world);
  world.training.privacy = steps(1e-9, 1e-3, 1, 4);
  const auto rows = world.shards[1];
  const auto change_by = [&](const std::vector<data::Example>& lot) {
    world.shards[1] = lot;
    return at::cat(moves(world));
  };
  const auto first = change_by({rows[0]}), second = change_by({rows[1]});
  const auto together = change_by({rows[0], rows[1], rows[0]});
  EXPECT_NEAR(length(first), 1e-3 / 4, 1e-7);
  EXPECT_NEAR(length(second), 1e-3 / 4, 1e-7);
  EXPECT_LT(length(together - 2 * first - second), 1e-8);
  EXPECT_GT(length(together), 1.2e-3 / 4) << "the sum of the rows is not clipped";
}

TEST(PrivateTraining, AnEmptyDrawIsAStepOfNoise) {
  TinyFederation world;
  world.training.privacy = steps(2, 0.5, 1e-15, 8);
  const auto one = trained(world);
  EXPECT_GT(one.steps, 1);
  EXPECT_EQ(one.tokens, 0);
  EXPECT_EQ(one.targets, 0);
  EXPECT_LT(one.privacy->signal, 0.25);  // (2 / (values * steps))^(1/4) is the error of the estimate
  EXPECT_GT(difference(one.upload.adapters, make_method("fedit")->initialize(world.server()).global.adapters), 1e-4);
}

/// Returns the mean product of the values that neighbouring tensors have in the same place, and their number.
std::pair<double, double> product_of_neighbours(const std::vector<at::Tensor>& tensors) {
  double sum = 0, count = 0;
  for (size_t i = 1; i < tensors.size(); ++i) {
    const int64_t size = std::min(tensors[i - 1].numel(), tensors[i].numel());
    sum += tensors[i - 1].narrow(0, 0, size).dot(tensors[i].narrow(0, 0, size)).item<double>();
    count += static_cast<double>(size);
  }
  return {sum / count, count};
}

// An empty draw moves each value by noise * clip / lot times N(0, 1). All bounds are five standard deviations.
TEST(PrivateTraining, TheNoiseOfAStepIsThatOfItsReportAndDiffersByStepsAndFactors) {
  TinyFederation world;
  descend(world);
  world.training.privacy = steps(2, 0.5, 1e-15, 8);
  const double deviation = 2 * 0.5 / 8;
  auto factors = moves(world);
  for (auto& change : factors) change = change / deviation;
  const auto first = at::cat(factors);
  world.training.local_epochs = 2.0 / 3;  // two steps
  const auto second = at::cat(moves(world)) / deviation - first;
  const auto values = static_cast<double>(first.numel());
  for (const auto& noise : {first, second}) {
    EXPECT_NEAR(noise.mean().item<double>(), 0, 5 / std::sqrt(values));
    EXPECT_NEAR(noise.std().item<double>(), 1, 5 / std::sqrt(2 * values));
  }
  EXPECT_NEAR((first * second).mean().item<double>(), 0, 5 / std::sqrt(values));
  const auto [product, count] = product_of_neighbours(factors);
  EXPECT_NEAR(product, 0, 5 / std::sqrt(count));
}

TEST(PrivateTraining, EveryStepDrawsRowsOfItsOwn) {
  TinyFederation world;
  world.training.local_epochs = 2;  // six steps
  world.training.privacy = steps(1, 0.1, 0.4, 5);
  std::vector<int64_t> expected, seen;  // tokens after each step
  std::set<int64_t> sizes;
  int64_t all = 0;
  for (int64_t step = 0; step < 6; ++step) {
    int64_t tokens = 0;
    for (const int64_t row : world.training.privacy->draws.lot(step, std::ssize(world.shards[1]), 0.4))
      tokens += std::ssize(world.shards[1][static_cast<size_t>(row)].ids);
    expected.push_back(all += tokens);
    sizes.insert(tokens);
  }
  ASSERT_GT(sizes.size(), 1u) << "the lots are alike: choose another key";
  const auto method = make_method("fedit");
  const auto state = method->initialize(world.server());
  const auto download = method->broadcast(state, world.clients[1], world.round(0));
  const auto view = world.view(world.clients[1], 0, state.common);
  train::train_locally(*world.model, *method, {download, view, world.shards[1]}, world.training,
                       [&](int64_t, int64_t, int64_t tokens) { seen.push_back(tokens); });
  EXPECT_EQ(seen, expected);
}

TEST(PrivateTraining, EqualKeysGiveEqualBitsAndOtherKeysOthers) {
  TinyFederation world;
  world.training.privacy = steps(1, 0.1, 0.3, 4);
  const auto one = trained(world), same = trained(world);
  world.training.privacy = steps(1, 0.1, 0.3, 4, "another round");
  const auto other = trained(world);
  EXPECT_TRUE(equal(one.upload.adapters, same.upload.adapters));
  EXPECT_FALSE(equal(one.upload.adapters, other.upload.adapters));
}

TEST(PrivateTraining, AWithheldReportHasItsStepsAlone) {
  TinyFederation world;
  auto withheld = *steps(1, 0.1, 0.3, 4);
  world.training.privacy = std::make_shared<const train::PrivateSteps>(withheld);
  const auto told = trained(world);
  withheld.report.withheld = true;
  world.training.privacy = std::make_shared<const train::PrivateSteps>(withheld);
  const auto bare = trained(world);
  EXPECT_TRUE(equal(told.upload.adapters, bare.upload.adapters));
  EXPECT_EQ(told.steps, bare.steps);
  EXPECT_GT(told.tokens, 0);
  EXPECT_EQ(bare.tokens + bare.targets, 0);
  EXPECT_EQ(bare.loss_sum + bare.first_loss + bare.last_loss + bare.seconds + bare.step_seconds, 0);
  EXPECT_TRUE(bare.counts.empty() && bare.metrics.empty() && !bare.move_seconds);
  EXPECT_EQ(bare.privacy->signal, told.privacy->signal);
}

TEST(PrivateTraining, RefusesUpdatesThatDependOnChosenExperts) {
  TinyFederation world;
  world.training.idle_expert_update = train::IdleExpertUpdate::kSkip;
  world.training.privacy = steps(1, 0.1, 0.3, 4);
  EXPECT_THROW(trained(world), Error);
}

TEST(PrivateTraining, MethodsThatUseRowsOtherwiseThanByGradientsAreNamed) {
  for (const auto& entry : methods::methods()) {
    if (entry.described) continue;
    const bool others = entry.asks_gradients || entry.weighs_experts || entry.name == "ub-smoe" ||
                        entry.name == "smoe-llb" || entry.name == "a3smoe";
    EXPECT_EQ(entry.rows_by_gradients, !others) << entry.name;
    if (others) {
      EXPECT_THROW(methods::require_rows_by_gradients(entry), Error);
    } else {
      EXPECT_NO_THROW(methods::require_rows_by_gradients(entry));
    }
  }
}

TEST(PrivateTraining, EveryAllowedMethodTrains) {
  TinyFederation world;
  world.training.privacy = steps(1, 0.1, 0.3, 4);
  for (const auto& entry : methods::methods()) {
    if (entry.described || !entry.rows_by_gradients) continue;
    const auto result = trained(world, std::string(entry.name));
    EXPECT_FALSE(result.upload.adapters.empty()) << entry.name;
    for (const auto& [name, tensor] : result.upload.extras)
      EXPECT_TRUE(name.find("counts") == name.npos && name.find("tokens") == name.npos) << entry.name << " " << name;
  }
}

}  // namespace
}  // namespace evenkeel
