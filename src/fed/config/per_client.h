/// \file  Defines a value per client in `[clients]`: a list with one value per client, or a pattern of values with
/// shares of the clients. This pattern assigns its values to 750, 125, 63 and 62 of 1000 clients:
///   budgets = { values = [0.125, 0.25, 0.5, 1.0], shares = [24, 4, 2, 2] }
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel::fed {

/// Selects how the values of a pattern are assigned to clients.
enum class Assignment {
  kSeed,   ///< in an order of clients drawn by the run's seed; all patterns of a run use the same order
  kOrder,  ///< in id order: the first clients get the first value, and so on
};
constexpr auto names(Assignment) {
  return std::array{config::EnumName<Assignment>{"seed", Assignment::kSeed},
                    config::EnumName<Assignment>{"order", Assignment::kOrder}};
}

/// Divides `clients` by share with the largest-remainder method; ties go to the earlier share.
/// \return the number of clients of each share, `clients` in all
std::vector<int64_t> counts_by_share(std::span<const double> shares, int64_t clients);

/// Assigns every client to a share. \return [client] index into `shares`
std::vector<size_t> assigned_shares(std::span<const double> shares, Assignment deal, int64_t clients, uint64_t seed);

/// A value per client, as a list or as a pattern.
template <typename T>
struct PerClient {
  std::vector<T> list{};         ///< one per client, or empty
  std::vector<T> values{};       ///< values of a pattern; empty for a list
  std::vector<double> shares{};  ///< one per value, in any unit; empty: equal shares
  Assignment deal = Assignment::kSeed;

  void visit(auto& field) {  // keys of a pattern
    field("values", values, "values of the clients, each for its share of them");
    field("shares", shares, "share of the clients for each value, in any unit; empty: equal shares");
    field("deal", deal,
          "order of the clients that values are assigned in: seed (drawn by the seed, the same for all keys) or order "
          "(by number)");
  }
  void resolve(const config::Table& table) const {
    table.check(table.keys().empty() || !values.empty(), "values", "empty", "one value or more");
    table.check(shares.empty() || shares.size() == values.size(), "shares", concat("[", join(shares), "]"),
                concat("one per value, of which there are ", values.size()));
    for (const double share : shares) table.check_above_zero("shares", share);
  }
  /// Returns true for a list, false for a pattern.
  bool listed() const { return values.empty(); }
  /// Returns the values as configured: one per client, or the values of the pattern.
  const std::vector<T>& numbers() const { return listed() ? list : values; }

  /// Returns one value per client. REQUIRES a list of `clients` values, or a pattern
  std::vector<T> of(int64_t clients, uint64_t seed) const {
    if (listed()) return list;
    std::vector<T> all;
    const auto equal = std::vector<double>(values.size(), 1.0);
    for (const size_t value : assigned_shares(shares.empty() ? equal : shares, deal, clients, seed))
      all.push_back(values[value]);
    return all;
  }
};

}  // namespace evenkeel::fed
