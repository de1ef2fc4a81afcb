#include "flower/federation/agreed_terms.h"

#include <algorithm>
#include <array>

#include "base/plain/files.h"
#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

constexpr std::string_view kRounds = "train.rounds", kTemplate = "chat template", kMethod = "source of the method";

/// The keys that may change, or the beginnings of such keys. A node's own budget, rank and rows are agreed on
/// separately (AgreedTerms), so the lists of all clients may change.
constexpr std::array<std::string_view, 25> kFree = {"threads",
                                                    "model.compute_dtype",
                                                    "model.products.",
                                                    "clients.",
                                                    "client_profiles.",
                                                    "train.stop.",
                                                    "evaluate.tasks",
                                                    "evaluate.budgets",
                                                    "evaluate.rank_eval_modes",
                                                    "evaluate.every",
                                                    "evaluate.before",
                                                    "evaluate.as_exported",
                                                    "evaluate.per_client",
                                                    "evaluate.batch_size",
                                                    "evaluate.cache_gib",
                                                    "evaluate.keep_best",
                                                    "evaluate.best.",
                                                    "evaluate.bert_score.",
                                                    "output.",
                                                    "report.",
                                                    "model.device",
                                                    "model.engine",
                                                    "model.graphs",
                                                    "model.cuda_kernels",
                                                    "model.base_cache"};

/// Returns true for keys of `[clients]` that decide which rows the client trains on and is tested with.
bool chooses_rows(std::string_view key, int64_t client) {
  const auto own = concat("clients.client[", client, "].");
  return key == concat(own, "held_out") || key == concat(own, "test") || key == concat(own, "data");
}

int64_t rounds_in(const config::Values& keys) {
  const auto found = keys.find(std::string(kRounds));
  return found == keys.end() ? 0 : parse_number<int64_t>(found->second).value_or(0);
}

std::string value_in(const config::Values& keys, const std::string& key) {
  const auto found = keys.find(key);
  return found == keys.end() ? "not there" : shown(found->second);
}

}  // namespace

bool may_change(std::string_view key, int64_t client) {
  if (chooses_rows(key, client)) return false;
  return std::any_of(kFree.begin(), kFree.end(), [&](auto free) { return key.starts_with(free); });
}

config::Values agreed_keys(const Offer& offer) {
  const auto config = fed::ExperimentConfig::read(config::Table::parse(offer.config, "the server's offer"));
  auto keys = config.values();
  const bool dealt = !config.clients.own_rows();
  std::erase_if(keys, [&](const auto& entry) {
    const bool deals =
        dealt && entry.first == "clients.count";  // then the number of clients decides who gets which rows
    return !deals && may_change(entry.first, offer.client);
  });
  keys[std::string(kTemplate)] = sha256(offer.chat_template);
  if (!offer.method.name.empty()) keys[std::string(kMethod)] = offer.method.source;
  return keys;
}

std::string digest_of_run(const std::string& config) {
  constexpr int64_t kNobody = -1;
  const auto keys = fed::ExperimentConfig::read(config::Table::parse(config, "the server's offer")).values();
  std::string text;
  for (const auto& [key, value] : keys)
    if (key != kRounds && !may_change(key, kNobody)) text += concat(key, " = ", value, '\n');
  return sha256(text);
}

std::vector<std::string> changes_of(const config::Values& offered, const config::Values& agreed) {
  auto all = offered;
  all.insert(agreed.begin(), agreed.end());
  const bool grows = rounds_in(offered) >= rounds_in(agreed);
  std::vector<std::string> changes;
  for (const auto& [key, value] : all) {
    const auto now = value_in(offered, key), then = value_in(agreed, key);
    if (now != then && !(key == kRounds && grows)) changes.push_back(concat(key, " is ", now, ", agreed on: ", then));
  }
  return changes;
}

}  // namespace evenkeel::flower
