#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

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

/// Returns the norm of the change of all factors after one step of plain gradient descent with rate 1.
double moved(const TinyFederation& world) {
  const auto method = make_method("fedit");
  const auto before = method->initialize(world.server()).global.adapters;
  const auto after = trained(world).upload.adapters;
  double squares = 0;
  for (const auto& [site, factors] : after) {
    squares += (factors.a - before.at(site).a).square().sum().item<double>();
    squares += (factors.b - before.at(site).b).square().sum().item<double>();
  }
  return std::sqrt(squares);
}

TEST(PrivateTraining, NoRowMovesTheGradientByMoreThanTheClip) {
  TinyFederation world;
  world.training.optimizer.name = train::OptimizerName::kSgd;
  world.training.optimizer.lr = 1, world.training.optimizer.momentum = 0, world.training.optimizer.weight_decay = 0;
  world.training.local_epochs = 1e-9;  // one step
  world.shards[1].resize(1);
  world.training.privacy = steps(1e-9, 1e-3, 1, 1);
  EXPECT_NEAR(moved(world), 1e-3, 1e-7) << "one row with a larger gradient moves exactly as far as the clip";
  world.training.privacy = steps(1e-9, 1e-3, 1, 4);
  EXPECT_NEAR(moved(world), 1e-3 / 4, 1e-7) << "the sum is divided by the lot, not by the rows drawn";
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
