// To add a method, write its file, then declare it here and add it to the table. Other programs call add_method().
#include "methods/method_registry.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace evenkeel::methods {

MethodEntry ub_smoe(), a3smoe(), smoe_llb(), hetlora(), flexlora(), flora(), florist(), fedex_lora(), ffa_lora(),
    fedit(), fed_sb(), slimmable_moe();

namespace {

std::deque<MethodEntry>& table() {
  static std::deque<MethodEntry> rows{ub_smoe(), a3smoe(),     smoe_llb(), hetlora(), flexlora(), flora(),
                                      florist(), fedex_lora(), ffa_lora(), fedit(),   fed_sb(),   slimmable_moe()};
  return rows;
}

}  // namespace

int64_t experts_at(double budget, int64_t max_top_k) {
  return static_cast<int64_t>(std::floor(static_cast<double>(max_top_k) * budget));
}

int64_t MethodEntry::top_k(double budget, int64_t max_top_k) const {
  return family == MethodFamily::kRank ? max_top_k : experts_at(budget, max_top_k);
}

int64_t MethodEntry::rank(double budget, int64_t max_rank) const {
  if (family != MethodFamily::kRank) return max_rank;
  // Gives the ranks of the paper's experiments, 6, 8, 12 and 20 of 20 (docs/ambiguities.md, R22).
  return std::max<int64_t>(1, std::llround(static_cast<double>(max_rank) * (0.2 + 0.8 * budget)));
}

std::vector<std::string> MethodEntry::rank_eval_modes(std::span<const std::string> asked, bool has_experts) const {
  if (family != MethodFamily::kRank) return {""};
  std::vector<std::string> possible;
  std::copy_if(asked.begin(), asked.end(), std::back_inserter(possible),
               [&](const std::string& mode) { return has_experts || mode == "a"; });
  return possible;
}

const std::deque<MethodEntry>& methods() { return table(); }

void add_method(const MethodEntry& entry) {
  const auto takes_name = [&](const MethodEntry& known) {
    return known.name == entry.name && (!known.described || (known.has_hooks && entry.has_hooks));
  };
  EK_CHECK(entry.make && entry.write && entry.list, kInternal, "method ", entry.name,
           " has no make, write or list: use method_entry()");
  EK_CHECK(std::none_of(table().begin(), table().end(), takes_name), kConfig, "method ", entry.name,
           " is in the table already: choose another name");
  table().push_back(entry);
}

void require_rows_by_gradients(const MethodEntry& entry) {
  std::vector<std::string_view> others;
  for (const auto& known : methods())
    if (known.rows_by_gradients) others.push_back(known.name);
  EK_CHECK(entry.rows_by_gradients, kConfig, "method ", entry.name,
           " uses a client's rows otherwise than by gradients of single rows (expert counts, losses over batches, sums "
           "of gradients or hooks), which privacy of single rows does not cover: use ",
           join(others));
}

void check_from_sums(const MethodEntry& entry) {
  std::vector<std::string_view> able;
  for (const auto& other : methods())
    if (other.from_sums != FromSums::kNo) able.push_back(other.name);
  EK_CHECK(entry.from_sums != FromSums::kNo, kConfig, "secure_aggregation.mode: method ", entry.name, " ",
           entry.why_single, ", but single uploads stay hidden; allowed: off, or a method of ", join(able));
}

void check_client_privacy(const MethodEntry& entry) {
  const auto can = [](const MethodEntry& one) { return one.from_sums != FromSums::kNo && !one.weighs_experts; };
  std::vector<std::string_view> able;
  for (const auto& other : methods())
    if (can(other)) able.push_back(other.name);
  EK_CHECK(can(entry), kConfig, "privacy.unit: method ", entry.name, " ",
           entry.weighs_experts ? "divides by weights of experts, which depend on rows" : entry.why_single,
           "; privacy of clients needs a sum of changes alone: use ", join(able));
}

const MethodEntry& find_method(std::string_view name) {
  const MethodEntry* found = nullptr;
  for (const auto& entry : methods())
    if (entry.name == name && (!found || entry.has_hooks || !found->has_hooks)) found = &entry;
  if (found) return *found;
  std::vector<std::string_view> known;
  for (const auto& entry : methods()) known.push_back(entry.name);
  fail(kConfig, "method.name is \"", name, "\", known: ", join(known));
}

}  // namespace evenkeel::methods
