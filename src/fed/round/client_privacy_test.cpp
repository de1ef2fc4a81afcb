#include "fed/round/client_privacy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/files.h"
#include "fed/config/sampling.h"
#include "fed/exchange/simulated_masks.h"
#include "fed/round/round_measures.h"
#include "fed/store/audit.h"
#include "fed/testing.h"
#include "lora/adapter.h"

namespace evenkeel::fed {
namespace {

using Updates = std::vector<methods::ClientUpdate>;

/// Returns the summands of clients that add the noise themselves.
Updates summands_of(const Experiment& e, const methods::ServerState& state, const Updates& updates) {
  const auto drawn = e.server.draw(state);
  Updates summands;
  for (const auto& update : updates) {
    const auto task = e.server.training_task(state, update.client, drawn);
    const auto terms = std::get<Train>(task.ask).summed.value();
    SimulatedNoise noise(e.server.seed());
    auto summand = noisy_summand(e.server.summed_layout(state, update.client), {update, state.global.adapters, {}},
                                 {task, terms, e.server.config->privacy, e.server.config->name}, noise);
    summands.push_back(
        {update.client, {.extras = {{kSummedValues, summand.values}, {kSummedCounts, summand.counts}}}, 1});
  }
  return summands;
}

class ClientPrivacyTest : public testing::SmallRun {
 protected:
  static Experiment private_run(const std::vector<std::string>& more = {}) {
    auto table = config::Table::parse(testing::kSmallRun, "unit.toml");
    table.set(concat("model.path=\"", (root() / "model").string(), "\""));
    for (const auto* one : {"method.name=\"fedit\"", "privacy.unit=\"client\"", "privacy.noise_multiplier=0.8",
                            "privacy.delta=1e-5", "privacy.clip=100.0"})
      table.set(one);
    for (const auto& one : more) table.set(one);
    return make_experiment(settle(ExperimentConfig::read(table), {}), Purpose::kTrain);
  }

  /// Returns uploads that differ from the state by random changes.
  static Updates updates_of(const Experiment& e, const methods::ServerState& state, uint64_t seed) {
    Updates updates;
    for (const auto& client : e.server.draw(state).participants) {
      auto changed = lora::clone(state.global.adapters);
      const auto moves = lora::make_adapters(e.server.sites, client.rank, 1.0, seed + static_cast<uint64_t>(client.id));
      for (auto& [site, factors] : changed)
        factors.a += 0.1 * moves.at(site).a, factors.b += 0.1 * moves.at(site).a.sum();
      updates.push_back({client, {.adapters = std::move(changed)}, 1});
    }
    return updates;
  }

  static methods::ServerState clean(const Experiment& e, const methods::ServerState& state, const Updates& updates) {
    auto round = e.server.draw(state);
    if (updates.size() < round.participants.size()) {
      std::vector<int64_t> lost;
      for (size_t i = updates.size(); i < round.participants.size(); ++i) lost.push_back(round.participants[i].id);
      round = without(std::move(round), lost);
    }
    return e.server.aggregate(state, round, updates);
  }

  static methods::ServerState noisy(const Experiment& e, const methods::ServerState& state, const Updates& updates,
                                    ClientPrivacy& privacy) {
    return e.server.aggregate(state, e.server.draw(state), updates, {.privacy = &privacy});
  }

  static at::Tensor values_of(const methods::ServerState& state) {
    std::vector<at::Tensor> all;
    for (const auto& [site, factors] : state.global.adapters)
      for (const auto& factor : {factors.a, factors.b}) all.push_back(factor.flatten());
    return at::cat(all).to(at::kDouble);
  }

  /// Means over releases: of the share within the clip bound, and of ln(next bound / bound).
  struct Adapted {
    double share = 0, growth = 0;
  };

  /// Returns them for nine releases of a round, whose uploads and so whose noise differ.
  static Adapted adapted(std::vector<std::string> keys, std::string_view clip) {
    for (const auto* key : {"privacy.adapt.target=0.4", "privacy.adapt.rate=0.5", "privacy.adapt.indicator_noise=0.5"})
      keys.emplace_back(key);
    keys.push_back(concat("privacy.clip=", clip));
    auto e = private_run(keys);
    const testing::TemporaryFolder run;
    ClientPrivacy privacy(e.server, run.path(), 0);
    const auto state = beginning(e).state;
    Adapted mean;
    for (uint64_t seed = 10; seed <= 90; seed += 10) {
      auto updates = updates_of(e, state, seed);
      if (e.server.adds_noise_in_clients()) updates = summands_of(e, state, updates);
      const auto next = noisy(e, state, updates, privacy);
      mean.share += privacy.record().share_within.value() / 9;
      mean.growth += std::log(next.memory.at("privacy.clip").item<double>() / privacy.record().clip) / 9;
    }
    return mean;
  }

  /// Checks the share and the next bound where all changes are within the clip bound, and where none is.
  static void expect_adapted(const std::vector<std::string>& keys) {
    const auto all = adapted(keys, "100.0"), none = adapted(keys, "1e-7");
    // The share of three clients has noise with a deviation of 0.5 / 3, its mean over nine releases a third of that.
    EXPECT_NEAR(all.share, 1, 5 * 0.5 / 9);
    EXPECT_NEAR(none.share, 0, 5 * 0.5 / 9);
    EXPECT_LT(all.growth, 0);
    EXPECT_GT(none.growth, 0);
    for (const auto& mean : {all, none}) EXPECT_NEAR(mean.growth, -0.5 * (mean.share - 0.4), 1e-12);
  }

  static size_t ledger_lines(const fs::path& run) { return privacy::Ledger::releases(run / "privacy").size(); }
};

double largest(const at::Tensor& values) { return values.abs().max().item<double>(); }

TEST_F(ClientPrivacyTest, WithoutNoiseAndWithinTheBoundTheSumIsTheMeanOfTheUploads) {
  auto e = private_run();
  const auto state = beginning(e).state;
  const auto updates = updates_of(e, state, 7);
  auto mean = at::zeros_like(values_of(state));
  for (const auto& update : updates)
    mean += values_of({.global = {.adapters = update.payload.adapters}}) / static_cast<double>(updates.size());
  const auto step = privacy::grid_of(mean.numel(), 100).step;
  EXPECT_LE(largest(values_of(clean(e, state, updates)) - mean), step / 2 + 1e-6);
  EXPECT_GT(largest(mean - values_of(state)), 10 * step) << "the updates change something";
}

TEST_F(ClientPrivacyTest, ChangesBeyondTheBoundAreScaledToIt) {
  auto e = private_run({"privacy.clip=0.5"});
  const auto state = beginning(e).state;
  const auto updates = updates_of(e, state, 7);
  auto mean = at::zeros_like(values_of(state));
  for (const auto& update : updates) {
    const auto change = values_of({.global = {.adapters = update.payload.adapters}}) - values_of(state);
    const double norm = change.norm().item<double>();
    ASSERT_GT(norm, 0.5);
    mean += change * (0.5 / norm) / static_cast<double>(updates.size());
  }
  const auto moved = values_of(clean(e, state, updates)) - values_of(state);
  EXPECT_LE(largest(moved - mean), 0.5 / 128 + 1e-6) << "the grid costs up to 1 / 256 of the bound";
  EXPECT_LE(moved.norm().item<double>(), 0.5 + 1e-6);
}

TEST_F(ClientPrivacyTest, ALostClientAddsZeroAndTheDivisorStays) {
  auto e = private_run();
  const auto state = beginning(e).state;
  auto updates = updates_of(e, state, 7);
  const auto whole = values_of(clean(e, state, updates)) - values_of(state);
  const auto last = values_of({.global = {.adapters = updates.back().payload.adapters}}) - values_of(state);
  updates.pop_back();
  const auto left = values_of(clean(e, state, updates)) - values_of(state);
  EXPECT_LE(largest(whole - left - last / 3), 2 * privacy::grid_of(last.numel(), 100).step) << "rounding";
  EXPECT_GT(largest(last / 3), 10 * privacy::grid_of(last.numel(), 100).step);
}

TEST_F(ClientPrivacyTest, EqualSumsGetEqualNoiseAndAreChargedOnceAndOthersGetTheirOwn) {
  auto e = private_run();
  const auto run = root() / "noise";
  ClientPrivacy privacy(e.server, run, 0);
  const auto state = beginning(e).state;
  const auto updates = updates_of(e, state, 7);
  const auto first = noisy(e, state, updates, privacy), again = noisy(e, state, updates, privacy);
  testing::expect_same(first, again);
  EXPECT_EQ(ledger_lines(run), 1u);
  const auto changed = updates_of(e, state, 8);
  const auto second = noisy(e, state, changed, privacy);
  EXPECT_EQ(ledger_lines(run), 2u);
  const auto noise = values_of(first) - values_of(clean(e, state, updates)),
             other = values_of(second) - values_of(clean(e, state, changed));
  const double deviation = 0.8 * 100 / 3;
  EXPECT_NEAR(noise.std().item<double>(), deviation, 0.1 * deviation);
  EXPECT_LT(std::abs((noise * other).mean().item<double>()), 0.2 * deviation * deviation) << "they are independent";
  EXPECT_LT(privacy.record().signal, 2);
  privacy::Accountant two;
  two.add({.noise = 0.8}, 2);
  EXPECT_EQ(privacy.record().epsilon, two.spent(1e-5).epsilon);
}

TEST_F(ClientPrivacyTest, ABudgetAllowsARoundToBeRepeatedButNotReleasedAnew) {
  privacy::Accountant one;
  one.add({.noise = 0.8});
  auto e = private_run({concat("privacy.epsilon=", one.spent(1e-5).epsilon + 0.01)});
  ClientPrivacy privacy(e.server, root() / "budget", 0);
  const auto state = beginning(e).state;
  ASSERT_TRUE(privacy.allows(0));
  noisy(e, state, updates_of(e, state, 7), privacy);
  EXPECT_EQ(privacy.record().ended_by, "privacy budget");
  EXPECT_TRUE(privacy.allows(0));
  EXPECT_FALSE(privacy.allows(1));
  noisy(e, state, updates_of(e, state, 7), privacy);
  EXPECT_THROW(noisy(e, state, updates_of(e, state, 8), privacy), BudgetSpent);
  EXPECT_EQ(ledger_lines(root() / "budget"), 1u);
}

TEST_F(ClientPrivacyTest, WithAFixedNumberAClientPaysForItsOwnRounds) {
  auto e = private_run({"clients.participation=0.34", "privacy.sampling=\"fixed\"", "privacy.noise=\"seeded\""});
  ClientPrivacy privacy(e.server, root() / "fixed", 0);
  auto state = beginning(e).state;
  std::map<int64_t, int64_t> rounds;
  for (state.round = 0; state.round < 6; ++state.round) {
    const auto drawn = e.server.draw(state).participants;
    ASSERT_EQ(drawn.size(), 1u);
    int64_t most = ++rounds[drawn[0].id];
    for (const auto& [id, count] : rounds) most = std::max(most, count);
    noisy(e, state, updates_of(e, state, 7), privacy);
    privacy::Accountant own;
    own.add({.noise = 0.8}, most);
    EXPECT_EQ(privacy.record().epsilon, own.spent(1e-5).epsilon);
  }
  EXPECT_GT(rounds.size(), 1u);
}

TEST_F(ClientPrivacyTest, AnEmptyPoissonRoundReleasesNoise) {
  auto e = private_run({"clients.participation=1e-9", "privacy.sampling=\"poisson\"", "privacy.clip=1e-7"});
  ClientPrivacy privacy(e.server, root() / "empty", 0);
  const auto state = beginning(e).state;
  ASSERT_TRUE(e.server.draw(state).participants.empty());
  const auto next = noisy(e, state, {}, privacy);
  EXPECT_GT(largest(values_of(next) - values_of(state)), 0);
  EXPECT_TRUE(privacy.record().simulated);
  EXPECT_EQ(privacy.record().relation, "add-or-remove");
}

TEST_F(ClientPrivacyTest, WeightsAreThoseOfRowsUpToACapAndTheDivisorIsTheirSum) {
  auto e = private_run({"privacy.weights=\"examples\"", "privacy.weight_cap=6", "privacy.public_sizes=true"});
  double expected = 0;
  for (const auto& client : e.server.clients) {
    EXPECT_EQ(private_weight(e.server.config->privacy, client), std::min(client.examples, 6.0) / 6);
    expected += std::min(client.examples, 6.0) / 6;
  }
  EXPECT_EQ(private_divisor(e.server, e.server.drawn(0)), expected);
}

/// Weights of about a tenth.
const std::vector<std::string> kWeighted = {"privacy.weights=\"examples\"", "privacy.weight_cap=60",
                                            "privacy.public_sizes=true"};

std::vector<std::string> joined(std::vector<std::string> keys, const std::vector<std::string>& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

TEST_F(ClientPrivacyTest, WeightsDoNotChangeTheNumberOfClients) {
  const std::vector<std::string> adapts = {"privacy.adapt.target=0.5", "privacy.noise_multiplier=0.2"};
  for (const auto* more : {"privacy.sampling=\"all\"", "privacy.sampling=\"poisson\""}) {
    const auto plain = private_run(joined(adapts, {more})),
               weighted = private_run(joined(joined(adapts, kWeighted), {more}));
    const auto drawn = weighted.server.drawn(0);
    EXPECT_LT(private_divisor(weighted.server, drawn), 1);
    EXPECT_EQ(expected_clients(weighted.server, drawn), 3);
    EXPECT_EQ(expected_clients(plain.server, plain.server.drawn(0)),
              private_divisor(plain.server, plain.server.drawn(0)));
    EXPECT_EQ(indicator_noise(weighted.server.config->privacy, expected_clients(weighted.server, drawn)), 3.0 / 20);
  }
}

TEST_F(ClientPrivacyTest, ASimulatedCohortHasTheNoiseOfItsNumberOfClients) {
  auto e = private_run(joined(kWeighted, {"privacy.sampling=\"poisson\"", "clients.participation=0.67",
                                          "privacy.noise_cohort=3", "privacy.noise=\"seeded\""}));
  ClientPrivacy privacy(e.server, root() / "cohort", 0);
  const auto state = beginning(e).state;
  const auto updates = updates_of(e, state, 7);
  const auto noise = values_of(noisy(e, state, updates, privacy)) - values_of(clean(e, state, updates));
  double weights = 0;
  for (const auto& client : e.server.clients) weights += client.examples / 60;
  const double deviation = 0.8 * 100 / weights;  // of three clients in place of two, with these weights
  EXPECT_NEAR(noise.std().item<double>(), deviation, 0.1 * deviation);
}

TEST_F(ClientPrivacyTest, TheClipBoundFollowsTheNormsAndIsPartOfTheState) {
  auto e = private_run({"privacy.adapt.target=0.5", "privacy.adapt.indicator_noise=3.0", "privacy.noise=\"seeded\""});
  ClientPrivacy privacy(e.server, root() / "adapt", 0);
  const auto state = beginning(e).state;
  const auto next = noisy(e, state, updates_of(e, state, 7), privacy);
  const double share = privacy.record().share_within.value();
  EXPECT_NE(share, 1) << "it has noise";
  EXPECT_DOUBLE_EQ(next.memory.at("privacy.clip").item<double>(), 100 * std::exp(-0.2 * (share - 0.5)));
  auto later = next;
  later.round = 1;
  noisy(e, later, updates_of(e, later, 7), privacy);
  EXPECT_EQ(privacy.record().clip, next.memory.at("privacy.clip").item<double>());
}

TEST_F(ClientPrivacyTest, TheClipBoundShrinksWhereAllAreWithinItAndGrowsWhereNobodyIs) {
  expect_adapted({"privacy.noise=\"seeded\""});
}

TEST_F(ClientPrivacyTest, TheClipBoundFollowsTheShareOfClientsWhateverTheirWeights) {
  expect_adapted(joined(kWeighted, {"privacy.noise=\"seeded\""}));
}

TEST_F(ClientPrivacyTest, BesideTheIndicatorsTheChangesHaveMoreNoise) {
  auto e = private_run({"privacy.adapt.target=0.5", "privacy.adapt.indicator_noise=0.5", "privacy.noise=\"seeded\""});
  ClientPrivacy privacy(e.server, root() / "beside", 0);
  const auto state = beginning(e).state;
  const auto updates = updates_of(e, state, 7);
  const auto noise = values_of(noisy(e, state, updates, privacy)) - values_of(clean(e, state, updates));
  const double multiplier = 4.0 / 3;  // (0.8^-2 - (2 * 0.5)^-2)^(-1/2)
  const double deviation = multiplier * 100 / 3;
  EXPECT_NEAR(noise.std().item<double>(), deviation,
              5 * deviation / std::sqrt(2.0 * static_cast<double>(noise.numel())));
}

TEST_F(ClientPrivacyTest, TheShareWithinTheBoundHasTheNoiseOfTheIndicators) {
  auto e = private_run({"privacy.adapt.target=0.5", "privacy.adapt.indicator_noise=3.0", "privacy.noise=\"seeded\""});
  ClientPrivacy privacy(e.server, root() / "indicators", 0);
  const auto drawn = e.server.drawn(0);
  constexpr int64_t kReleases = 40;
  double squares = 0;
  for (int64_t i = 0; i < kReleases; ++i) {
    std::vector<int64_t> values{i, 2, -i, 5, 1};  // two clients are within the bound, one is not
    privacy.release({.drawn = drawn, .grid = privacy::grid_of(4, 100), .clip = 100, .divisor = 3, .values = values});
    squares += std::pow(privacy.record().share_within.value() - 2.0 / 3, 2);
  }
  // The deviation is indicator_noise / divisor = 1.
  EXPECT_NEAR(std::sqrt(squares / kReleases), 1, 5 / std::sqrt(2.0 * kReleases));
}

TEST_F(ClientPrivacyTest, NoiseThatExactDrawsCannotHaveIsRefusedBeforeTheRound) {
  auto e = private_run();
  const auto state = beginning(e).state;
  EXPECT_NO_THROW(e.server.check_private_sum(state, 0.8));
  EXPECT_THROW(e.server.check_private_sum(state, 1e7), Error);
}

const std::vector<std::string> kNoiseOfClients = {"secure_aggregation.mode=\"sums\"",
                                                  "secure_aggregation.reports=false"};

TEST_F(ClientPrivacyTest, TheNoiseOfTheClientsIsThatOfTheHonestOnesAndMoreOfAll) {
  auto e = private_run(kNoiseOfClients), plain = private_run();
  ClientPrivacy privacy(e.server, root() / "clients", 0);
  const auto state = beginning(e).state;
  const auto updates = updates_of(plain, state, 7);
  const auto next = noisy(e, state, summands_of(e, state, updates), privacy);
  const auto noise = values_of(next) - values_of(clean(plain, state, updates));
  const double deviation = 0.8 * 100 / 3;  // all three are needed
  EXPECT_NEAR(noise.std().item<double>(), deviation, 0.1 * deviation);
  EXPECT_LT(std::abs(noise.mean().item<double>()), 0.2 * deviation);
  EXPECT_EQ(privacy.record().honest, 3);
  EXPECT_TRUE(privacy.record().simulated);
  testing::expect_same(next, noisy(e, state, summands_of(e, state, updates), privacy));
  EXPECT_EQ(ledger_lines(root() / "clients"), 1u);
  noisy(e, state, summands_of(e, state, updates_of(plain, state, 8)), privacy);
  EXPECT_EQ(ledger_lines(root() / "clients"), 2u);
}

TEST_F(ClientPrivacyTest, TheClipBoundFollowsTheIndicatorsThatClientsSend) {
  expect_adapted(kNoiseOfClients);
  expect_adapted(joined(kNoiseOfClients, kWeighted));
}

TEST_F(ClientPrivacyTest, FewerClientsThanTheNoiseCountsOnGiveNoSum) {
  auto e = private_run(kNoiseOfClients), plain = private_run();
  ClientPrivacy privacy(e.server, root() / "few", 0);
  const auto state = beginning(e).state;
  auto summands = summands_of(e, state, updates_of(plain, state, 7));
  summands.pop_back();
  const auto drawn = e.server.draw(state);
  const auto left = without(drawn, std::vector<int64_t>{drawn.participants.back().id});
  EXPECT_THROW(e.server.aggregate(state, left, summands, {.privacy = &privacy}), Error);
  EXPECT_EQ(ledger_lines(root() / "few"), 0u);
}

TEST_F(ClientPrivacyTest, ALostLedgerOrKeyEndsTheRun) {
  auto e = private_run();
  const auto run = root() / "lost";
  EXPECT_THROW(ClientPrivacy(e.server, run, 1), Error) << "rounds are done, and there is no account";
  {
    ClientPrivacy privacy(e.server, run, 0);
    const auto state = beginning(e).state;
    noisy(e, state, updates_of(e, state, 7), privacy);
  }
  remove_path(run / "privacy" / "privacy.key");
  EXPECT_THROW(ClientPrivacy(e.server, run, 1), Error);
}

TEST_F(ClientPrivacyTest, AnAccountGoesOnInALaterRun) {
  auto e = private_run({"privacy.epsilon=50.0"});
  {
    ClientPrivacy privacy(e.server, root() / "earlier", 0);
    const auto state = beginning(e).state;
    noisy(e, state, updates_of(e, state, 7), privacy);
  }
  auto later = private_run({concat("privacy.continues=\"", (root() / "earlier").string(), "\"")});
  ClientPrivacy privacy(later.server, root() / "later", 0);
  EXPECT_EQ(ledger_lines(root() / "later"), 1u);
  const auto state = beginning(later).state;
  noisy(later, state, updates_of(later, state, 7), privacy);
  privacy::Accountant two;
  two.add({.noise = 0.8}, 2);
  EXPECT_EQ(privacy.record().epsilon, two.spent(1e-5).epsilon);
}

TEST_F(ClientPrivacyTest, ABroadcastHoldsFactorsAndValuesThatNoRowChanges) {
  for (const std::string_view method : {"fedit", "ffa-lora", "smoe-llb"}) {
    auto e = private_run({concat("method.name=\"", method, "\"")});
    const auto state = beginning(e).state;
    const auto sent = e.server.method->broadcast(state, e.server.clients[0], e.server.draw(state));
    EXPECT_TRUE(sent.extras.empty() && sent.base_delta.empty()) << method;
  }
  auto e = private_run({"method.name=\"ub-smoe\"", "method.ub-smoe.pg=false", "method.ub-smoe.phi_update=\"off\""});
  const auto state = beginning(e).state, next = clean(e, state, updates_of(e, state, 7));
  const auto extras = [&](const methods::ServerState& of) {
    return e.server.method->broadcast(of, e.server.clients[0], e.server.draw(of)).extras;
  };
  ASSERT_FALSE(extras(state).empty());
  for (const auto& [name, tensor] : extras(next)) {
    EXPECT_TRUE(name.ends_with(".phi")) << name;
    EXPECT_TRUE(at::equal(tensor, extras(state).at(name))) << name;
  }
  EXPECT_GT(largest(values_of(next) - values_of(state)), 0);
}

TEST_F(ClientPrivacyTest, MethodsThatReleaseMoreThanASumAreRefused) {
  for (const std::string_view method : {"flora", "florist", "hetlora", "flexlora", "fedex-lora", "fed-sb", "a3smoe"})
    EXPECT_THROW(private_run({concat("method.name=\"", method, "\"")}), Error) << method;
  for (const auto* option : {"pg=true", "phi_update=\"utilization\"", "phi_train=\"local_fedavg\""})
    EXPECT_THROW(private_run({"method.name=\"ub-smoe\"", "method.ub-smoe.pg=false", "method.ub-smoe.phi_update=\"off\"",
                              concat("method.ub-smoe.", option)}),
                 Error)
        << option;
}

/// Collects the names that visit() passes.
struct Names {
  std::set<std::string> all;
  template <typename T>
  void operator()(std::string_view name, T&) {
    all.emplace(name);
  }
  static bool holds(std::string_view, bool) { return true; }
};

template <typename Record>
std::set<std::string> names_of(Record record) {
  Names names;
  record.visit(names);
  return names.all;
}

// What a run with privacy of clients does with each quantity. A new field of a record has to be entered here.
const std::set<std::string> kPublic = {  // the config's, the server's own, or sizes that do not depend on rows
    "id",
    "name",
    "node",
    "budget",
    "top_k",
    "rank",
    "weight",
    "bytes_up",
    "bytes_down",
    "bytes_up_parts",
    "bytes_down_parts",
    "up_parts",
    "down_parts",
    "files",
    "round",
    "method",
    "gate_norm",
    "gates_sum_to_one",
    "lr",
    "participants",
    "clients",
    "lost",
    "reason",
    "seconds",
    "kind",
    "key",
    "run",
    "client",
    "work",
    "digest",
    "outcome",
    "client_s",
    "peer",
    "diagnostics"};
const std::set<std::string> kOfSizes = {"examples", "steps"};  // absent unless privacy.public_sizes
const std::set<std::string> kWithheld = {"tokens",       "targets",      "loss",    "loss_sum",          "first_loss",
                                         "last_loss",    "counts",       "metrics", "experts_per_token", "flops",
                                         "step_seconds", "move_seconds", "moved"};
const std::set<std::string> kAbsent = {  // of other kinds of runs
    "simulated",           "secure_aggregation", "layers",      "utilization",   "entropy",   "gini",
    "dead_experts",        "entropy_mean",       "entropy_std", "entropy_joint", "gini_mean", "nearly_dead_experts",
    "entropy_unnormalized"};

template <typename Record>
void expect_all_known(Record record) {
  for (const auto& name : names_of(std::move(record)))
    EXPECT_TRUE(name == "privacy" || kPublic.contains(name) || kOfSizes.contains(name) || kWithheld.contains(name) ||
                kAbsent.contains(name))
        << name << ": say what a run with privacy of clients does with it";
}

TEST(ReleaseTable, EveryFieldOfRecordsHasARow) {
  expect_all_known(ClientRecord{});
  expect_all_known(ClientOfRound{});
  expect_all_known(RoundRecord{});
  expect_all_known(LostClient{});
  expect_all_known(AuditEvent{});
}

TEST(ReleaseTable, AReportKeepsNothingOfRows) {
  train::LocalReport report, of_steps;
  report.steps = of_steps.steps = 4;
  report.tokens = 90, report.targets = 30, report.loss_sum = 7, report.first_loss = 2, report.last_loss = 1;
  report.counts["layer"].counts = at::ones({3}, at::kLong);
  report.metrics["share"] = 0.5;
  report.seconds = report.step_seconds = 3, report.move_seconds = 1;
  auto of_known_size = report;
  withhold({.unit = PrivacyUnit::kClient}, report);
  EXPECT_EQ(record::write(report), record::write(train::LocalReport{}));
  withhold({.unit = PrivacyUnit::kClient, .public_sizes = true}, of_known_size);
  EXPECT_EQ(record::write(of_known_size), record::write(of_steps));
}

}  // namespace
}  // namespace evenkeel::fed
