#include "train/local_training.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tiny_federation.h"

namespace evenkeel {
namespace {

TEST(LocalSteps, AreEpochsDividedByTheEffectiveBatchAndAtLeastOne) {
  train::LocalTraining training;
  EXPECT_EQ(train::local_steps(training, 1890), 47);
  EXPECT_EQ(train::local_steps(training, 472), 12);
  EXPECT_EQ(train::local_steps(training, 1390), 35);
  EXPECT_EQ(train::local_steps(training, 3), 1);
}

TEST(LocalTraining, ReducesTheLossAndReportsItsWork) {
  TinyFederation world;
  world.training.local_epochs = 20;
  const auto method = make_method("fedit");
  int64_t calls = 0;
  const auto& client = world.clients[1];
  const auto download = method->broadcast(method->initialize(world.server()), client, world.round(0, {1}));
  const auto result = train::train_locally(*world.model, *method, {download, world.view(client, 0), world.shards[1]},
                                           world.training, [&](int64_t done, int64_t steps, int64_t tokens) {
                                             EXPECT_EQ(done, ++calls);
                                             EXPECT_EQ(steps, 60);
                                             EXPECT_GT(tokens, 0);
                                           });
  EXPECT_EQ(result.steps, 60);
  EXPECT_EQ(calls, 60);
  int64_t tokens = 0, targets = 0;
  for (const auto& row : world.shards[1]) tokens += static_cast<int64_t>(row.ids.size()), targets += row.targets();
  EXPECT_EQ(result.tokens, 20 * tokens);
  EXPECT_EQ(result.targets, 20 * targets);
  EXPECT_NEAR(result.first_loss, std::log(37.0), 1.5);
  EXPECT_LT(result.last_loss, 0.7 * result.first_loss);
  for (const auto& [site, factors] : result.upload.adapters) EXPECT_FALSE(factors.a.requires_grad()) << site;
}

TEST(LocalTraining, BitsDoNotDependOnEarlierTraining) {
  const TinyFederation world;
  const auto method = make_method("ub-smoe");
  const auto state = world.run(*method, 1);
  const auto alone = world.train(*method, state, world.round(1), world.clients[2]);
  world.train(*method, state, world.round(1), world.clients[0]);
  const auto after = world.train(*method, state, world.round(1), world.clients[2]);
  EXPECT_TRUE(equal(alone.upload.adapters, after.upload.adapters));
  EXPECT_EQ(alone.loss_sum, after.loss_sum);
}

TEST(LocalTraining, PrefixSharingDoesNotChangeTraining) {
  TinyFederation world;
  for (auto& shard : world.shards)
    for (auto& example : shard) example.ids.insert(example.ids.begin(), {3, 1, 4, 1, 5}), example.first_target += 5;
  const auto method = make_method("ub-smoe");
  const auto shared = world.run(*method, 2);
  world.training.share_prefixes = false;
  const auto own = world.run(*method, 2);
  EXPECT_FALSE(equal(shared.global.adapters, own.global.adapters)) << "the key has no effect";
  EXPECT_LT(difference(shared.global.adapters, own.global.adapters), 2e-3);
}

/// FedAvg that asks for the gradients of each step with `top_k` experts per token, and keeps those of the first step.
class WithReference : public methods::FederatedMethod {
 public:
  explicit WithReference(int64_t top_k) : top_k_(top_k) {}
  methods::LocalSetup prepare(const lora::Payload& download, const methods::ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    setup.reference_top_k = top_k_;
    return setup;
  }
  void edit_gradients(const methods::StepView& step) const override {
    if (!own.empty()) return;
    for (const auto& [site, factors] : step.setup.adapters)
      own[site] = {.a = factors.a.grad().clone(), .b = factors.b.grad().clone()};
    if (step.reference) reference = *step.reference;
  }
  mutable lora::AdapterState own, reference;

 private:
  int64_t top_k_;
};

// A client of K = 1 gets the gradients that a client of K = 3 computes from the same rows. Its own training keeps its
// bits.
TEST(LocalTraining, AReferencePassGivesTheGradientsOfAnotherKAndChangesNothing) {
  TinyFederation world;
  const auto state = world.run(*make_method("fedit"), 1);
  const auto client = world.clients[0];
  auto larger = client;
  larger.top_k = 3;
  const WithReference plain(0), asks(3), at_three(0);
  const auto without = world.train(plain, state, world.round(1), client);
  const auto with = world.train(asks, state, world.round(1), client);
  world.train(at_three, state, world.round(1), larger);
  EXPECT_TRUE(plain.reference.empty());
  ASSERT_EQ(asks.reference.size(), world.sites.size());
  EXPECT_LT(difference(asks.reference, at_three.own), 1e-6);
  EXPECT_GT(difference(asks.reference, asks.own), 1e-4) << "K has no effect";
  EXPECT_TRUE(equal(asks.own, plain.own));
  EXPECT_TRUE(equal(with.upload.adapters, without.upload.adapters));
  EXPECT_EQ(with.loss_sum, without.loss_sum);
  EXPECT_EQ(with.tokens, without.tokens);
  for (const auto& [layer, stats] : with.counts) EXPECT_TRUE(stats.counts.equal(without.counts.at(layer).counts));
}

/// Runs one client's round of one step over all its rows, in micro-batches of `batch_size`.
train::LocalResult step_over_all(TinyFederation& world, train::LossMean mean, int64_t batch_size) {
  const auto rows = static_cast<int64_t>(world.shards[2].size());
  world.training.loss_mean = mean;
  world.training.batch_size = batch_size;
  world.training.accumulation = rows / batch_size;
  const auto method = make_method("fedit");
  return world.train(*method, method->initialize(world.server()), world.round(0), world.clients[2]);
}

// The mean over a step does not depend on how it is divided into micro-batches. The mean of means does.
TEST(LocalTraining, AMeanOverTheStepEqualsThatOfOneMicroBatch) {
  TinyFederation world;
  auto& rows = world.shards[2];
  rows.resize(4, rows.front());
  rows[1].first_target = static_cast<int64_t>(rows[1].ids.size()) - 1;
  rows[2].first_target = static_cast<int64_t>(rows[2].ids.size());  // no targets
  const auto whole = step_over_all(world, train::LossMean::kMicroBatch, 4);
  for (const int64_t batch_size : {1, 2}) {
    const auto mean = step_over_all(world, train::LossMean::kStep, batch_size);
    const auto means = step_over_all(world, train::LossMean::kMicroBatch, batch_size);
    EXPECT_EQ(mean.steps, 1);
    EXPECT_LT(difference(mean.upload.adapters, whole.upload.adapters), 1e-4) << batch_size;
    EXPECT_GT(difference(means.upload.adapters, whole.upload.adapters), 1e-3)
        << batch_size << ": the key has no effect";
    EXPECT_NEAR(mean.loss_sum, means.loss_sum, 1e-4);  // the reported loss is over all targets in both modes
  }
}

/// Runs one client's round with micro-batches merged up to `merge_tokens`.
train::LocalResult merged_round(TinyFederation& world, const std::string& method, int64_t merge_tokens) {
  world.training.merge_tokens = merge_tokens;
  const auto instance = make_method(method);
  return world.train(*instance, instance->initialize(world.server()), world.round(0), world.clients[2]);
}

TEST(LocalTraining, MergingMicroBatchesDoesNotChangeTraining) {
  TinyFederation world;
  world.training.batch_size = 1;
  world.training.accumulation = 5;
  world.shards[2][1].first_target = static_cast<int64_t>(world.shards[2][1].ids.size());  // no targets
  for (const std::string method : {"fedit", "ub-smoe", "smoe-llb"}) {
    const auto separate = merged_round(world, method, 0), alone = merged_round(world, method, 1);
    EXPECT_TRUE(equal(separate.upload.adapters, alone.upload.adapters)) << method << ": one pass for each either way";
    for (const int64_t tokens : {25, 1024}) {
      const auto merged = merged_round(world, method, tokens);
      EXPECT_FALSE(equal(merged.upload.adapters, separate.upload.adapters)) << "the key has no effect";
      EXPECT_LT(difference(merged.upload.adapters, separate.upload.adapters), 2e-3) << method;
      EXPECT_EQ(merged.targets, separate.targets);
      EXPECT_EQ(merged.tokens, separate.tokens);
      EXPECT_NEAR(merged.loss_sum, separate.loss_sum, 1e-3 * separate.loss_sum);
      ASSERT_EQ(merged.metrics.size(), separate.metrics.size());
      for (const auto& [name, value] : separate.metrics) EXPECT_NEAR(merged.metrics.at(name), value, 1e-2) << name;
      for (const auto& [layer, stats] : separate.counts) EXPECT_EQ(merged.counts.at(layer).tokens, stats.tokens);
    }
  }
}

TEST(LocalTraining, RowOrderDiffersBetweenRounds) {
  const TinyFederation world;
  const auto method = make_method("fedit");
  const auto state = method->initialize(world.server());
  const auto one = world.train(*method, state, world.round(0), world.clients[2]);
  const auto other = world.train(*method, state, world.round(1), world.clients[2]);
  EXPECT_FALSE(equal(one.upload.adapters, other.upload.adapters));
}

TEST(LocalTraining, ABatchWithoutTargetsContributesNothing) {
  TinyFederation world;
  for (auto& row : world.shards[0]) row.first_target = static_cast<int64_t>(row.ids.size());
  for (const std::string name : {"fedit", "ub-smoe"}) {
    const auto method = make_method(name);
    const auto state = method->initialize(world.server());
    const auto result = world.train(*method, state, world.round(0), world.clients[0]);
    EXPECT_EQ(result.targets, 0);
    EXPECT_EQ(result.loss_sum, 0);
    EXPECT_TRUE(equal(result.upload.adapters, state.global.adapters)) << name;
  }
}

/// Returns the upload of one client's round after a change of the options.
lora::AdapterState trained_with(std::string_view method_name,
                                const std::function<void(train::LocalTraining&)>& change) {
  TinyFederation world;
  world.training.optimizer.weight_decay = 0.1;
  change(world.training);
  const auto method = make_method(method_name);
  return world.train(*method, method->initialize(world.server()), world.round(0), world.clients[1]).upload.adapters;
}

TEST(LocalTraining, EveryOptionOfTheOptimiserChangesARun) {
  using Change = std::function<void(train::LocalTraining&)>;
  const Change to_sgd = [](auto& training) { training.optimizer.name = train::OptimizerName::kSgd; };
  const std::vector<std::pair<Change, Change>> changes{
      {{}, [](auto& training) { training.max_grad_norm = 0.1; }},
      {{}, to_sgd},
      {{}, [](auto& training) { training.optimizer.lr *= 2; }},
      {{},
       [](auto& training) {
         training.optimizer.betas = {0.8, 0.95};
       }},
      {{},
       [](auto& training) {
         training.optimizer.betas = {0.9, 0.9};
       }},
      {{}, [](auto& training) { training.optimizer.eps = 1e-3; }},
      {{}, [](auto& training) { training.optimizer.weight_decay = 0.2; }},
      {to_sgd, [](auto& training) { training.optimizer.momentum = 0.9; }},
      {to_sgd, [](auto& training) { training.optimizer.weight_decay = 0.2; }},
      {to_sgd, [](auto& training) { training.optimizer.lr *= 2; }},
      {to_sgd, [](auto& training) { training.max_grad_norm = 0.1; }}};
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto& [both, one] = changes[i];
    const auto standard = trained_with("fedit", [&](auto& training) {
      if (both) both(training);
    });
    const auto changed = trained_with("fedit", [&](auto& training) {
      if (both) both(training);
      one(training);
    });
    EXPECT_FALSE(equal(standard, changed)) << i;
  }
}

// The algorithm as printed: plain SGD for all experts, the idle ones by rho Gt. Both readings of R11 are then one.
TEST(LocalTraining, PlainSgdStepsByAPseudoGradientAsByAGradient) {
  TinyFederation world;
  const auto decoupled = make_method("ub-smoe", "pg_clip_mode = 'off'");
  const auto as_gradient = make_method("ub-smoe", "pg_clip_mode = 'off'\npg_apply = 'adam_grad'");
  const auto state = world.run(*decoupled, 1);
  world.training.optimizer = {.name = train::OptimizerName::kSgd, .lr = 0.05, .weight_decay = 0};
  const auto trained = [&](const methods::FederatedMethod& method) {
    return world.train(method, state, world.round(1), world.clients[0]).upload.adapters;
  };
  const auto printed = trained(*decoupled);
  EXPECT_LT(difference(printed, trained(*as_gradient)), 1e-6);
  EXPECT_GT(difference(printed, trained(*make_method("ub-smoe", "pg = false"))), 1e-3) << "no expert was idle";
  world.training.optimizer = {.name = train::OptimizerName::kAdamW, .lr = 0.05, .weight_decay = 0};
  EXPECT_GT(difference(trained(*decoupled), trained(*as_gradient)), 1e-3);
}

TEST(LocalTraining, ALimitAboveEveryNormChangesNothing) {
  const auto standard = trained_with("ub-smoe", [](auto&) {});
  EXPECT_TRUE(equal(standard, trained_with("ub-smoe", [](auto& training) { training.max_grad_norm = 1e6; })));
}

/// Adds large numbers to every gradient, as a method may.
class LargeGradients : public methods::FederatedMethod {
 public:
  void edit_gradients(const methods::StepView& step) const override {
    for (auto& [site, factors] : step.setup.adapters) factors.b.mutable_grad().add_(3.0);
  }
};

// At a rate of 1, without momentum and decay, the change of the factors is the gradient that the optimiser got.
TEST(LocalTraining, TheNormIsLimitedAfterAMethodsChangesOfTheGradient) {
  for (const auto engine : {nn::EngineKind::kKernels, nn::EngineKind::kAten}) {
    TinyFederation world(engine == nn::EngineKind::kKernels ? "olmoe" : "olmo");
    world.training.optimizer = {.name = train::OptimizerName::kSgd, .lr = 1.0, .weight_decay = 0};
    world.training.max_grad_norm = 0.02;
    world.training.local_epochs = 0.01;
    world.training.compute.engine = engine;
    const LargeGradients method;
    const auto state = method.initialize(world.server());
    const auto result = world.train(method, state, world.round(0), world.clients[1]);
    ASSERT_EQ(result.steps, 1);
    double squares = 0;
    for (const auto& [site, factors] : result.upload.adapters) {
      const auto& before = state.global.adapters.at(site);
      squares += (factors.a - before.a).square().sum().item<double>();
      squares += (factors.b - before.b).square().sum().item<double>();
    }
    EXPECT_NEAR(std::sqrt(squares), 0.02, 1e-5);
  }
}

constexpr double kWeight = 3;

/// Adds kWeight / 2 times the squared norm of every A to the loss, and counts how often it was asked.
class SquaredNorm : public methods::FederatedMethod {
 public:
  at::Tensor penalty(const methods::StepView& step) const override {
    ++asked;
    std::vector<at::Tensor> sums;
    for (const auto& [site, factors] : step.setup.adapters) sums.push_back(factors.a.square().sum());
    return kWeight / 2 * at::stack(sums).sum();
  }
  mutable int64_t asked = 0;
};
/// The same method with the gradient in place of the loss.
class SquaredNormByGradient : public methods::FederatedMethod {
 public:
  void edit_gradients(const methods::StepView& step) const override {
    if (step.micro_batches.empty()) return;
    for (const auto& [site, factors] : step.setup.adapters) factors.a.grad().add_(factors.a.detach(), kWeight);
  }
};

TEST(LocalTraining, APenaltyIsAddedOncePerStepWhateverItsMicroBatches) {
  TinyFederation world;
  world.training.optimizer.name = train::OptimizerName::kSgd;
  world.shards[2][1].first_target = static_cast<int64_t>(world.shards[2][1].ids.size());  // no targets
  const auto trained = [&](const methods::FederatedMethod& method) {
    return world.train(method, method.initialize(world.server()), world.round(0), world.clients[2]);
  };
  for (const int64_t accumulation : {1, 2, 3})
    for (const int64_t merge_tokens : {0, 1024}) {
      world.training.batch_size = 1;
      world.training.accumulation = accumulation;
      world.training.merge_tokens = merge_tokens;
      const SquaredNorm penalised;
      const auto by_loss = trained(penalised), by_gradient = trained(SquaredNormByGradient());
      EXPECT_EQ(penalised.asked, by_loss.steps - (accumulation == 1 ? 1 : 0)) << "not in a step without targets";
      EXPECT_LT(difference(by_loss.upload.adapters, by_gradient.upload.adapters), 1e-6);
      EXPECT_GT(difference(by_loss.upload.adapters, trained(methods::FederatedMethod()).upload.adapters), 1e-3);
      EXPECT_EQ(by_loss.first_loss, by_gradient.first_loss) << "the recorded loss is that of the task";
    }
}

TEST(LocalTraining, StopsAtALossThatIsNotFinite) {
  const TinyFederation world;
  const auto method = make_method("fedit");
  auto state = method->initialize(world.server());
  for (auto& [site, factors] : state.global.adapters) factors.b = at::full_like(factors.b, INFINITY);
  try {
    world.train(*method, state, world.round(0), world.clients[0]);
    FAIL() << "an infinite loss was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kNumeric);
    EXPECT_NE(std::string(error.what()).find("local step 1"), std::string::npos) << error.what();
  }
}

TEST(LocalTraining, RejectsARankAboveTheClients) {
  TinyFederation world;
  const auto method = make_method("fedit");
  const auto state = method->initialize(world.server());
  world.clients[0].rank = 2;
  EXPECT_THROW(world.train(*method, state, world.round(0), world.clients[0]), Error);
}

/// Returns the largest change of experts that no token selected in the whole round, over the stacked sites.
double idle_move(TinyFederation& world, const methods::FederatedMethod& method, const methods::ServerState& state) {
  const auto& client = world.clients[0];
  const auto result = world.train(method, state, world.round(1), client);
  double move = 0;
  int64_t idle = 0;
  for (const auto& [name, site] : world.sites) {
    if (site.experts == 0) continue;
    const auto unused_E = result.counts.at(site.moe_layer).counts.eq(0);
    idle += unused_E.sum().item<int64_t>();
    const auto& before = state.global.adapters.at(name);
    const auto& after = result.upload.adapters.at(name);
    for (const auto& delta : {after.a - before.a, after.b - before.b})
      move = std::max(move, (delta.flatten(1).abs().amax(1) * unused_E).max().item<double>());
  }
  EXPECT_GT(idle, 0) << "no expert was idle: the test shows nothing";
  return move;
}

TEST(IdleExperts, DecayUnlessSkippedAndChangeWithAMethodsGradient) {
  TinyFederation world;
  world.shards[0].resize(2);
  world.training.optimizer.weight_decay = 0.1;
  const auto fedit = make_method("fedit"), ub = make_method("ub-smoe");
  const auto state = world.run(*fedit, 1), ub_state = world.run(*ub, 1);
  EXPECT_GT(idle_move(world, *fedit, state), 0);
  world.training.idle_expert_update = train::IdleExpertUpdate::kSkip;
  EXPECT_EQ(idle_move(world, *fedit, state), 0);
  EXPECT_GT(idle_move(world, *ub, ub_state), 0);
}

}  // namespace
}  // namespace evenkeel
