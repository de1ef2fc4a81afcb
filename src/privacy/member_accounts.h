/// \file  Keeps an account per member, for releases that say who took part in them. A member pays for these and for
/// releases of all members.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "privacy/accountant.h"

namespace evenkeel::privacy {

/// The accounts of the members of releases, by id. Copies are independent. Not thread-safe.
class MemberAccounts {
 public:
  using Members = std::optional<std::vector<int64_t>>;  ///< nothing: all members

  /// Adds releases. \throws kConfig as Accountant::add()
  void add(const Event& event, int64_t times, const Members& members = {});

  /// Returns the account of the releases of all members. It is also the account of each member that no release names.
  const Accountant& of_all() const { return all_; }
  /// Returns the account with the largest epsilon of any member.
  const Accountant& largest(double delta) const;
  /// Returns the largest epsilon of any member.
  Spent spent(double delta) const;
  /// Returns true when one more event would cost any of `members` more than the budget.
  bool would_exceed(const Event& event, const Members& members, const Budget& budget) const;
  /// Returns how many more events the budget allows to the member that has spent most, at most `most`.
  int64_t remaining(const Event& event, const Budget& budget, int64_t most) const;

 private:
  const Accountant& of(int64_t member) const;

  Accountant all_;
  std::map<int64_t, Accountant> named_;  // of members that a release names, with the releases of all
};

}  // namespace evenkeel::privacy
