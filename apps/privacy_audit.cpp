#include "apps/privacy_audit.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/number_text.h"
#include "privacy/ledger.h"
#include "privacy/limits.h"

namespace evenkeel::apps {
namespace {

fs::path ledger_folder(const fs::path& given) {
  for (const auto& folder : {given / "privacy", given})
    if (privacy::Ledger::exists(folder)) return folder;
  fail(kConfig, "privacy: --run is ", given.string(), ", which has no account (privacy/", privacy::Ledger::kFile, ")");
}

privacy::MemberAccounts accounts_of(const std::vector<privacy::Release>& releases) {
  privacy::MemberAccounts accounts;
  for (const auto& release : releases)
    accounts.add({.noise = release.noise, .sampling = release.sampling}, release.times, release.members);
  return accounts;
}

int64_t count_rounds(const std::vector<privacy::Release>& releases) {
  std::set<std::pair<std::string, int64_t>> rounds;
  for (const auto& release : releases) rounds.emplace(release.run, release.round);
  return std::ssize(rounds);
}

}  // namespace

PrivacyAudit audit_privacy(const fs::path& given, std::optional<double> delta) {
  const auto folder = ledger_folder(given);
  const auto releases = privacy::Ledger::releases(folder);
  const auto plans = privacy::Ledger::plans(folder);
  EK_CHECK(!plans.empty(), kConfig, "privacy: ", folder.string(), " has no plan of a run: nothing was released");
  const auto& plan = plans.back();
  const auto accounts = accounts_of(releases);
  const privacy::Budget budget{plan.epsilon > 0 ? plan.epsilon : 1, delta.value_or(plan.delta)};
  check_budget(budget, "privacy");
  const auto spent = accounts.spent(budget.delta);
  PrivacyAudit audit{.ledger = (folder / privacy::Ledger::kFile).string(),
                     .runs = {},
                     .releases = 0,
                     .rounds = count_rounds(releases),
                     .epsilon = spent.epsilon,
                     .order = spent.order,
                     .delta = budget.delta,
                     .budget = {},
                     .rounds_left = {}};
  for (const auto& release : releases) {
    audit.releases += release.times;
    if (std::find(audit.runs.begin(), audit.runs.end(), release.run) == audit.runs.end())
      audit.runs.push_back(release.run);
  }
  if (plan.epsilon == 0) return audit;
  audit.budget = plan.epsilon;
  const int64_t left =
      accounts.remaining({.noise = plan.noise, .sampling = plan.sampling}, budget, privacy::kMostReleases);
  audit.rounds_left = left / (releases.empty() ? 1 : releases.back().times);
  return audit;
}

OrderedJson json_of(const PrivacyAudit& audit) {
  OrderedJson json{{"ledger", audit.ledger},     {"runs", audit.runs},       {"rounds", audit.rounds},
                   {"releases", audit.releases}, {"epsilon", audit.epsilon}, {"delta", audit.delta},
                   {"order", audit.order},       {"budget", nullptr},        {"rounds_left", nullptr}};
  if (audit.budget) json["budget"] = *audit.budget;
  if (audit.rounds_left) json["rounds_left"] = *audit.rounds_left;
  return json;
}

std::string text_of(const PrivacyAudit& audit) {
  auto text = concat("ledger        ", audit.ledger, ": whole\n",  //
                     "released      ", audit.rounds, " rounds, ", audit.releases,
                     " noisy sums; runs: ", join(audit.runs), '\n', "epsilon       ", fixed(audit.epsilon, 4),
                     " at delta ", audit.delta, " (Renyi, order ", audit.order, "), of who has spent most\n");
  if (audit.budget)
    text += concat("budget        epsilon ", *audit.budget, ": ", *audit.rounds_left, " more rounds like the last\n");
  return text;
}

}  // namespace evenkeel::apps
