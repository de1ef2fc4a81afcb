#include "privacy/member_accounts.h"

#include <algorithm>

namespace evenkeel::privacy {

void MemberAccounts::add(const Event& event, int64_t times, const Members& members) {
  if (members) {
    for (const int64_t member : *members) named_.try_emplace(member, all_).first->second.add(event, times);
    return;
  }
  all_.add(event, times);
  for (auto& [member, account] : named_) account.add(event, times);
}

const Accountant& MemberAccounts::of(int64_t member) const {
  const auto found = named_.find(member);
  return found == named_.end() ? all_ : found->second;
}

const Accountant& MemberAccounts::largest(double delta) const {
  const Accountant* most = &all_;
  double epsilon = all_.spent(delta).epsilon;
  for (const auto& [member, account] : named_) {
    const double own = account.spent(delta).epsilon;
    if (own > epsilon) most = &account, epsilon = own;
  }
  return *most;
}

Spent MemberAccounts::spent(double delta) const { return largest(delta).spent(delta); }

bool MemberAccounts::would_exceed(const Event& event, const Members& members, const Budget& budget) const {
  if (members)
    return std::any_of(members->begin(), members->end(),
                       [&](int64_t member) { return of(member).would_exceed(event, 1, budget); });
  return all_.would_exceed(event, 1, budget) || std::any_of(named_.begin(), named_.end(), [&](const auto& one) {
           return one.second.would_exceed(event, 1, budget);
         });
}

int64_t MemberAccounts::remaining(const Event& event, const Budget& budget, int64_t most) const {
  int64_t least = all_.remaining(event, budget, most);
  for (const auto& [member, account] : named_) least = std::min(least, account.remaining(event, budget, most));
  return least;
}

}  // namespace evenkeel::privacy
