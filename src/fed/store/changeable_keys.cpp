#include "fed/store/changeable_keys.h"

#include <algorithm>
#include <array>

#include "base/plain/text.h"
#include "fed/config/key_effects.h"

namespace evenkeel::fed {
namespace {

/// When a key may change.
enum class May {
  kAlways,
  kUnlessCompared,  ///< not where train.stop or evaluate.keep_best compares the scores of all rounds
  kBeforeScores,    ///< as kUnlessCompared, and only before the first score: later ones would be of other rows
};

/// A key that a resumed run may change. "[]" follows a list of tables, whose entries change together.
struct Changeable {
  std::string_view key;
  May may;
  void (*take)(const ExperimentConfig& from, ExperimentConfig& to);
};

void take_until(const ExperimentConfig& from, ExperimentConfig& to) {
  for (size_t i = 0; i < std::min(from.clients.client.size(), to.clients.client.size()); ++i)
    to.clients.client[i].until = from.clients.client[i].until;
}

constexpr std::array kChangeable{
    Changeable{"clients.deadline", May::kAlways,
               [](auto& from, auto& to) { to.clients.deadline = from.clients.deadline; }},
    Changeable{"clients.quorum", May::kAlways, [](auto& from, auto& to) { to.clients.quorum = from.clients.quorum; }},
    Changeable{"clients.most_examples", May::kAlways,
               [](auto& from, auto& to) { to.clients.most_examples = from.clients.most_examples; }},
    Changeable{"clients.update_norm", May::kAlways,
               [](auto& from, auto& to) { to.clients.update_norm = from.clients.update_norm; }},
    Changeable{"clients.update_ratio", May::kAlways,
               [](auto& from, auto& to) { to.clients.update_ratio = from.clients.update_ratio; }},
    Changeable{"clients.bound_simulated", May::kAlways,
               [](auto& from, auto& to) { to.clients.bound_simulated = from.clients.bound_simulated; }},
    Changeable{"clients.assign", May::kAlways, [](auto& from, auto& to) { to.clients.assign = from.clients.assign; }},
    Changeable{"clients.on_change", May::kAlways,
               [](auto& from, auto& to) { to.clients.on_change = from.clients.on_change; }},
    Changeable{"clients.client[].until", May::kAlways, take_until},
    Changeable{"evaluate.every", May::kUnlessCompared,
               [](auto& from, auto& to) { to.evaluate.every = from.evaluate.every; }},
    Changeable{"evaluate.budgets", May::kUnlessCompared,
               [](auto& from, auto& to) { to.evaluate.budgets = from.evaluate.budgets; }},
    Changeable{"evaluate.per_client", May::kUnlessCompared,
               [](auto& from, auto& to) { to.evaluate.per_client = from.evaluate.per_client; }},
    Changeable{"evaluate.limit", May::kBeforeScores,
               [](auto& from, auto& to) { to.evaluate.limit = from.evaluate.limit; }}};

const Changeable* find(std::string_view key) {
  const auto found = std::ranges::find(kChangeable, without_indices(key), &Changeable::key);
  return found == kChangeable.end() ? nullptr : &*found;
}

}  // namespace

std::string why_not_changeable(std::string_view key, const RunConfig& run, size_t scores) {
  const auto* found = find(key);
  if (!found) return std::string(kKept);
  if (found->may == May::kAlways) return {};
  if (run->seeks_best()) return "train.stop and evaluate.keep_best compare the scores of all rounds";
  if (found->may == May::kBeforeScores && scores > 0)
    return concat(scores, " scores are recorded, which later ones could not be compared with");
  return {};
}

void take_values(std::span<const ChangedKey> keys, const ExperimentConfig& from, ExperimentConfig& to) {
  for (const auto& changed : keys)
    if (const auto* found = find(changed.key)) found->take(from, to);
}

std::vector<std::string_view> changeable_keys() {
  std::vector<std::string_view> keys;
  for (const auto& one : kChangeable) keys.push_back(one.key);
  return keys;
}

}  // namespace evenkeel::fed
