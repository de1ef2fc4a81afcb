// Checks that every key of every method, and every value of an enumerated key, changes the bits of a run. Keys and
// values come from the methods' tables, so a new one without an entry here fails.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/testing.h"
#include "tiny_federation.h"

namespace evenkeel {
namespace {

enum class Seen { kTraining, kEvaluation, kNever };

/// The expected effect of `key` = `value`, with the settings of both runs that the key needs to have an effect.
struct Change {
  std::string method, key, value, settings = {};
  Seen seen = Seen::kTraining;
};

/// docs/methods.md names the settings that a key needs.
const std::vector<Change>& changes() {
  static const std::vector<Change> all{
      {"ub-smoe", "dmr_mode", "'preserve'", "num_candidates = 1"},
      // Only the default of N_p depends on it.
      {"ub-smoe", "dmr_mode", "'candidate_wide'", "num_candidates = 5", Seen::kNever},
      {"ub-smoe", "num_candidates", "6"},
      {"ub-smoe", "gate_scores", "'raw'"},
      {"ub-smoe", "phi_update", "'off'"},
      {"ub-smoe", "phi_momentum", "0.0"},
      {"ub-smoe", "phi_range", "[-0.5, 2.0]"},
      {"ub-smoe", "phi_scale", "'none'", "phi_range = [-0.5, 2.0]"},
      {"ub-smoe", "phi_scale", "'clip'", "phi_range = [-0.01, 0.01]"},
      {"ub-smoe", "util_frequency", "'per_selection'"},
      {"ub-smoe", "util_eps", "0.5"},
      {"ub-smoe", "phi_train", "'off'"},
      {"ub-smoe", "phi_train", "'local_fedavg'"},
      {"ub-smoe", "phi_penalty", "'l2'"},
      {"ub-smoe", "lambda_phi", "0.5", {}, Seen::kNever},  // phi stays inside its range
      {"ub-smoe", "lambda_phi", "0.5", "phi_range = [-0.001, 0.001]"},
      {"ub-smoe", "lambda_phi", "0.5", "phi_penalty = 'l2'"},
      {"ub-smoe", "phi_at_eval", "false", {}, Seen::kEvaluation},
      {"ub-smoe", "pg", "false"},
      {"ub-smoe", "pg_source", "'placebo'"},
      {"ub-smoe", "pg_source", "'momentum'"},
      {"ub-smoe", "pg_source", "'oracle'"},
      {"ub-smoe", "pg_activity", "'token_weighted'"},
      {"ub-smoe", "pg_activity", "'micro_union'"},
      {"ub-smoe", "pg_apply", "'adam_grad'"},
      {"ub-smoe", "pg_clip_mode", "'per_expert_norm'", "pg_clip = 0.1"},
      {"ub-smoe", "pg_clip_mode", "'elementwise'", "pg_clip = 0.1"},
      {"ub-smoe", "pg_clip_mode", "'global_norm'", "pg_clip = 0.1\npg_apply = 'adam_grad'"},
      {"ub-smoe", "pg_clip_mode", "'global_norm'", "pg_clip = 0.1"},
      {"ub-smoe", "pg_clip_mode", "'off'", "pg_clip = 0.1"},
      {"ub-smoe", "pg_clip", "0.1"},
      {"ub-smoe", "pg_clip", "0.1", "pg_clip_mode = 'off'", Seen::kNever},
      {"ub-smoe", "pg_gamma", "'literal_0.4'"},
      {"ub-smoe", "kbar_over", "'clients'"},
      {"ub-smoe", "rho_ref", "'kmax'"},
      {"ub-smoe", "rho_fn", "'none'"},
      {"ub-smoe", "rho_fn", "'linear'"},
      {"ub-smoe", "rho_fn", "'inv_sqrt'"},
      {"ub-smoe", "rho_fn", "'log'"},
      {"a3smoe", "temperature", "2.0"},
      {"a3smoe", "frequency", "'per_selection'"},
      {"a3smoe", "rescaler", "'learn'"},
      {"a3smoe", "rescaler", "'fixed'"},
      {"a3smoe", "unused_expert", "'mean'"},
      {"smoe-llb", "llb_coef", "1.0"},
      {"smoe-llb", "z_coef", "1.0"},
      {"smoe-llb", "llb_norm", "'sum'"},
      {"smoe-llb", "llb_norm", "'hf'"},
      {"slimmable-moe", "expert_mass", "'none'"},
      {"slimmable-moe", "expert_mass", "'tokens'"},
      {"slimmable-moe", "expert_mass", "'gates'"},
      {"slimmable-moe", "distillation", "0.0"},
      {"slimmable-moe", "temperature", "2.0"},
      {"slimmable-moe", "temperature", "2.0", "distillation = 0.0", Seen::kNever},
      {"hetlora", "gamma", "0.5"},
      {"hetlora", "lambda", "1.0"},
      {"hetlora", "prune", "false", "gamma = 0.5"},
      {"hetlora", "rank_min", "3", "gamma = 0.5"},
      {"hetlora", "unused_rank", "'keep'"},
      {"flora", "fresh_init", "'shared'"},
      {"florist", "mode", "'code'"},
      {"florist", "tau", "0.5"},
      {"florist", "max_rank", "1"},
      {"fed-sb", "init", "'federated'", "samples = 3"},  // with all rows, both modes sample the same
      {"fed-sb", "samples", "4"},
  };
  return all;
}

bool any(std::string_view method, std::string_view key, std::string_view value = {}) {
  return std::any_of(changes().begin(), changes().end(), [&](const Change& change) {
    return change.method == method && change.key == key && (value.empty() || change.value == concat("'", value, "'"));
  });
}

/// Returns the keys with their defaults, as written into resolved configs.
std::map<std::string, std::string> options_of(const methods::MethodEntry& entry) {
  config::Writer writer;
  entry.write(config::Table::parse("", "test"), writer);
  std::map<std::string, std::string> options;
  for (std::string text = writer.text(); !text.empty();) {
    const auto line = text.substr(0, text.find('\n'));
    if (const auto sign = line.find(" = "); sign != std::string::npos)
      options[line.substr(0, sign)] = line.substr(sign + 3);
    text.erase(0, line.size() + 1);
  }
  return options;
}

/// Returns the values that a key allows, from the error message for an invalid value.
std::vector<std::string> allowed(const methods::MethodEntry& entry, const std::string& key) {
  std::string message;
  try {
    entry.make(config::Table::parse(key + " = 'none of them'", "test"));
  } catch (const Error& error) {
    message = error.what();
  }
  const std::string_view begin = "allowed: ";
  const auto first = message.find(begin), last = message.rfind(" (");
  EXPECT_NE(first, std::string::npos) << message;
  std::vector<std::string> values;
  for (std::string remaining = message.substr(first + begin.size(), last - first - begin.size()); !remaining.empty();) {
    values.push_back(remaining.substr(0, remaining.find(", ")));
    remaining.erase(0, values.back().size() + 2);
  }
  return values;
}

TEST(EveryOption, IsInTheTableOfThisTestWithEveryValue) {
  for (const auto& entry : methods::methods())
    for (const auto& [key, standard] : options_of(entry)) {
      EXPECT_TRUE(any(entry.name, key)) << entry.name << "." << key << " has no entry: does it change a run?";
      if (!standard.starts_with('"')) continue;
      const auto values = allowed(entry, key);
      EXPECT_GT(values.size(), 1u) << entry.name << "." << key;
      for (const auto& value : values)
        EXPECT_TRUE(concat('"', value, '"') == standard || any(entry.name, key, value))
            << entry.name << "." << key << " = " << value << " has no entry";
    }
  for (const auto& change : changes())
    EXPECT_TRUE(options_of(methods::find_method(change.method)).contains(change.key))
        << change.method << "." << change.key;
}

/// Returns a federation whose steps have two micro-batches of one row, so that some experts are idle in one and some in
/// both.
TinyFederation world_of(const Change& change) {
  TinyFederation world;
  world.training.batch_size = 1;
  // Makes tails shrink.
  if (change.key == "kbar_over") world.drawn = {0, 1, 3};
  if (change.key == "unused_rank")
    for (const int64_t client : {0, 1}) world.drawn.push_back(client), world.clients.at(client).rank = world.rank - 1;
  if (change.key == "prune" || change.key == "rank_min") world.training.optimizer.weight_decay = 50;
  if (change.key != "unused_expert") return world;
  world.training.optimizer.weight_decay = 0.1;  // otherwise an expert that nobody used would not change
  for (auto& client : world.clients) client.top_k = 1;
  for (auto& shard : world.shards) {
    shard.resize(1);
    shard[0].ids.resize(2);
    shard[0].first_target = 1;
  }
  return world;
}

struct Outcome {
  std::map<std::string, at::Tensor> trained;  ///< every weight's change, and the factors at the start of the next round
  TensorMap modulation;                       ///< the phi that an evaluation at K = 2 uses
};

Outcome outcome(const Change& change, const std::string& toml) {
  const auto world = world_of(change);
  const auto method = make_method(change.method, toml);
  const auto state = world.run(*method, 2);
  auto evaluator = world.clients[1];
  evaluator.trains = false;
  const auto download = method->broadcast(state, evaluator, {.round = 2});
  const auto setup = method->prepare(download, world.view(evaluator, 2, state.common));
  auto trained = effect(state);
  for (const auto& [site, factors] : state.global.adapters)
    for (const auto& [name, factor] : {std::pair(".a", factors.a), std::pair(".b", factors.b)})
      if (factor.defined()) trained[site + name] = factor;
  return {std::move(trained), setup.router.modulation};
}

template <typename Map>
bool same_tensors(const Map& x, const Map& y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& left, const auto& right) {
    return left.first == right.first && left.second.equal(right.second);
  });
}

class OptionOfMethod : public ::testing::TestWithParam<std::string> {};

TEST_P(OptionOfMethod, ChangesARunAsExpected) {
  std::map<std::string, Outcome> references;  // by the settings of both runs
  for (const auto& change : changes()) {
    if (change.method != GetParam()) continue;
    const auto name = concat(change.method, ".", change.key, " = ", change.value, " beside [", change.settings, "]");
    const auto used = world_of(change);
    const bool ordinary = used.training.optimizer.weight_decay == 0 && used.drawn.empty();
    const auto shared = concat(ordinary ? std::string() : change.key, "/", change.settings);
    if (!references.contains(shared)) references[shared] = outcome(change, change.settings);
    const auto& reference = references.at(shared);
    const auto changed = outcome(change, concat(change.settings, "\n", change.key, " = ", change.value));
    for (const auto& [site, delta] : changed.trained) EXPECT_TRUE(delta.isfinite().all().item<bool>()) << name;
    EXPECT_EQ(same_tensors(changed.trained, reference.trained), change.seen != Seen::kTraining) << name;
    if (change.seen == Seen::kEvaluation) {
      EXPECT_FALSE(same_tensors(changed.modulation, reference.modulation)) << name;
    }
  }
}

/// Returns an adapter for every site but the last, with a scale that differs from the run's.
lora::AdapterState adapter_to_begin_with(const TinyFederation& world, int64_t rank) {
  auto start = lora::make_adapters(world.sites, rank, 0.75, 99);
  for (auto& [site, factors] : start) factors.b.uniform_(-0.2, 0.2);
  start.erase(std::prev(start.end()));
  return start;
}

double largest_difference(const std::map<std::string, at::Tensor>& effects, const lora::AdapterState& start) {
  double largest = 0;
  for (const auto& [site, factors] : start)
    largest = std::max(largest, (effects.at(site) - lora::delta_weight(factors)).abs().max().item<double>());
  return largest;
}

// With [lora] init, the initial state has the same effect as the adapter for every method, and training continues.
TEST_P(OptionOfMethod, StartingFromAnAdapterKeepsItsEffectAndTrains) {
  const TinyFederation world;
  const auto& entry = methods::find_method(GetParam());
  const auto method = make_method(GetParam());
  if (!entry.starts_from_adapter) GTEST_SKIP() << "refused by name (fed/round/starting_adapter.cpp)";
  for (const int64_t rank : {2, 4}) {
    at::manual_seed(7);
    const auto start = adapter_to_begin_with(world, rank);
    auto server = world.server();
    server.start = &start;
    auto state = method->initialize(server);
    EXPECT_LT(largest_difference(effect(state), start), 1e-5) << "rank " << rank;
    for (const auto& client : world.clients)
      for (const auto& [site, factors] : method->broadcast(state, client, world.round(0)).adapters)
        EXPECT_LE(factors.rank(), std::max(client.rank, world.rank)) << site;
    const auto next = world.aggregate(*method, state, world.round(0), world.train_all(*method, state, world.round(0)));
    const auto before = effect(state), after = effect(next);
    for (const auto& [site, delta] : after) EXPECT_TRUE(delta.isfinite().all().item<bool>()) << site;
    EXPECT_FALSE(same_tensors(before, after)) << "rank " << rank;
  }
}

// Methods whose clients train the factors of the start refuse a higher rank. Those that make it a change of the base
// keep all of it. No method cuts it.
TEST_P(OptionOfMethod, AStartingAdapterAboveTheLargestRankIsRefusedOrKeptWhole) {
  const TinyFederation world;
  if (!methods::find_method(GetParam()).starts_from_adapter)
    GTEST_SKIP() << "refused by name (fed/round/starting_adapter.cpp)";
  const auto start = adapter_to_begin_with(world, world.rank + 1);
  auto server = world.server();
  server.start = &start;
  const auto refusal_of = [&](const methods::FederatedMethod& method) {
    return testing::refusal([&] { EXPECT_LT(largest_difference(effect(method.initialize(server)), start), 1e-5); });
  };
  const auto says = concat("lora.init has rank 5 at ", start.begin()->first, ", allowed: up to 4");
  const bool into_base = GetParam() == "flora" || GetParam() == "florist";
  const auto refusal = refusal_of(*make_method(GetParam()));
  EXPECT_EQ(refusal.find(says) == std::string::npos, into_base) << refusal;
  if (GetParam() != "florist") return;
  const auto in_code = refusal_of(*make_method("florist", "mode = \"code\""));
  EXPECT_NE(in_code.find(says), std::string::npos) << in_code;
}

// Padding of other programs: rows of A that are zero with their columns of B. They have neither effect nor gradient.
TEST_P(OptionOfMethod, IdleRowsOfAStartingAdapterAreReplacedByFreshOnes) {
  const TinyFederation world;
  if (!methods::find_method(GetParam()).starts_from_adapter)
    GTEST_SKIP() << "refused by name (fed/round/starting_adapter.cpp)";
  auto start = adapter_to_begin_with(world, 3);
  for (auto& [site, factors] : start) {
    factors.a.narrow(-2, 1, 1).zero_();
    factors.b.narrow(-1, 1, 1).zero_();
  }
  auto server = world.server();
  server.start = &start;
  const auto state = make_method(GetParam())->initialize(server);
  EXPECT_LT(largest_difference(effect(state), start), 1e-5);
  for (const auto& [site, factors] : lora::completed(state.global.adapters, state.common.fixed))
    EXPECT_TRUE(factors.a.ne(0).any(-1).all().item<bool>()) << site;
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const auto& entry : methods::methods()) names.emplace_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(AllMethods, OptionOfMethod, ::testing::ValuesIn(method_names()), [](const auto& info) {
  auto name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace evenkeel
