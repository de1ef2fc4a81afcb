/// \file  A number for every client, as `[clients]` says it: a list with one each, or a pattern, values with their
/// shares of all clients. Example, of a thousand clients 750, 125, 63 and 62:
///   budgets = { values = [0.125, 0.25, 0.5, 1.0], shares = [24, 4, 2, 2] }
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel {

/// Who gets which of a pattern's values.
enum class Assignment {
  kSeed,   ///< clients in an order drawn by the run's seed, the same one for all patterns of a run
  kOrder,  ///< the first clients the first value, and so on
};
constexpr auto names(Assignment) {
  return std::array{config::EnumName<Assignment>{"seed", Assignment::kSeed},
                    config::EnumName<Assignment>{"order", Assignment::kOrder}};
}

/// How many of `clients` each share comes to, all of them together: by largest remainder, ties to the earlier.
std::vector<int64_t> counts_by_share(std::span<const double> shares, int64_t clients);

/// The share that each client belongs to.
std::vector<size_t> assigned_shares(std::span<const double> shares, Assignment deal, int64_t clients, uint64_t seed);

template <typename T>
struct PerClient {
  std::vector<T> list{};         ///< one per client, or empty
  std::vector<T> values{};       ///< of a pattern; else empty
  std::vector<double> shares{};  ///< of the clients, one per value, in any unit; empty: equal ones
  Assignment deal = Assignment::kSeed;

  void visit(auto& field) {  // of a pattern
    field("values", values, "what clients get, each value for a share of them");
    field("shares", shares, "shares of the clients, one per value, in any unit; empty: equal ones");
    field("deal", deal, "who gets which: seed, in an order drawn by the seed (one for all patterns); order, by number");
  }
  void resolve(const config::Table& table) const {
    table.check(table.keys().empty() || !values.empty(), "values", "empty", "one value or more");
    table.check(shares.empty() || shares.size() == values.size(), "shares", concat("[", join(shares), "]"),
                concat("one per value, of which there are ", values.size()));
    for (const double share : shares) table.check_above_zero("shares", share);
  }
  bool listed() const { return values.empty(); }
  /// What was said: one number each, or those of the pattern.
  const std::vector<T>& numbers() const { return listed() ? list : values; }

  /// One per client. REQUIRES a list of `clients`, or a pattern.
  std::vector<T> of(int64_t clients, uint64_t seed) const {
    if (listed()) return list;
    std::vector<T> all;
    const auto equal = std::vector<double>(values.size(), 1.0);
    for (const size_t value : assigned_shares(shares.empty() ? equal : shares, deal, clients, seed))
      all.push_back(values[value]);
    return all;
  }
};

}  // namespace evenkeel
