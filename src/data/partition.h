/// \file  Distributes rows over clients. Sources of the Dirichlet schemes: Hsu et al. 2019 (kPrior); Yurochkin et al.
/// 2019 (kGroup).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel::data {

/// Selects how rows are distributed.
/// - kIid: shuffled, then cut into equal parts.
/// - kSequential: cut into equal parts in file order.
/// - kDirichlet: skewed by label, with proportions drawn from a Dirichlet distribution.
/// - kBudget: each label belongs to the clients of one budget, which get a given share of its rows.
enum class PartitionKind { kIid, kSequential, kDirichlet, kBudget };
/// Selects what the Dirichlet proportions apply to.
enum class DirichletScheme {
  /// Each client draws its own mixture of groups from Dir(alpha, ..., alpha); clients have equal sizes. This is the
  /// UB-SMoE paper's description.
  kClient,
  /// As kClient, but from Dir(alpha p), where p is the groups' shares of all rows: with G groups, about the skew of
  /// kClient at alpha / G. This is what the paper cites.
  kPrior,
  kGroup,  ///< each group is divided over the clients; clients have unequal sizes (Yurochkin et al.)
};
constexpr auto names(PartitionKind) {
  return std::array{config::EnumName<PartitionKind>{"iid", PartitionKind::kIid},
                    config::EnumName<PartitionKind>{"sequential", PartitionKind::kSequential},
                    config::EnumName<PartitionKind>{"dirichlet", PartitionKind::kDirichlet},
                    config::EnumName<PartitionKind>{"budget", PartitionKind::kBudget}};
}
constexpr auto names(DirichletScheme) {
  return std::array{config::EnumName<DirichletScheme>{"client", DirichletScheme::kClient},
                    config::EnumName<DirichletScheme>{"prior", DirichletScheme::kPrior},
                    config::EnumName<DirichletScheme>{"group", DirichletScheme::kGroup}};
}

/// The config table `partition` of `[data]`. visit() documents the keys.
struct PartitionConfig {
  PartitionKind kind = PartitionKind::kIid;
  double alpha = 0.1;
  std::string key = "label";
  DirichletScheme scheme = DirichletScheme::kClient;
  double share = 0.85;
  std::vector<std::string> groups{};
  void visit(auto& field) {
    field("kind", kind,
          "iid (shuffled and cut evenly), sequential (cut in file order), dirichlet (skewed by `key`) or budget (each "
          "group of `key` belongs to the clients of one budget)");
    field("alpha", alpha, "dirichlet: concentration, > 0; smaller is more skewed");
    field("key", key,
          "dirichlet, budget: key that rows are grouped by: label (the task kind); for telequad: spec (the same as "
          "label), source or docid; for builtin_large: topic");
    field(
        "scheme", scheme,
        "dirichlet: client (each client draws its mixture of groups), prior (the same, alpha times the groups' shares "
        "of all rows) or group (each group is divided over the clients)");
    field("share", share,
          "budget: share of a group's rows, in (0, 1], that is divided evenly among the clients of its budget; the "
          "clients of all other budgets divide the rest evenly");
    field("groups", groups,
          "budget: all groups; they are assigned to the budgets in turn, starting with the smallest budget; empty: "
          "sorted by name");
  }
  /// Returns true if rows are grouped by `key`.
  bool grouped() const { return kind == PartitionKind::kDirichlet || kind == PartitionKind::kBudget; }
  void resolve(const config::Table& table) const;
};

/// Returns the row indices of each client: disjoint and together all rows. Deterministic in `seed`.
/// \param labels   the group of each row; only kDirichlet and kBudget read their values
/// \param budgets  the budget of each client; only kBudget reads their values
/// \throws kConfig for no client, for more clients than rows, for alpha <= 0, or if kGroup leaves a client empty in
/// 1,000 draws. With kBudget also: if all budgets are equal, if `groups` is neither empty nor all groups of the rows,
/// or if a client gets no row
std::vector<std::vector<int64_t>> partition(std::span<const std::string> labels, std::span<const double> budgets,
                                            const PartitionConfig& config, uint64_t seed);

}  // namespace evenkeel::data
