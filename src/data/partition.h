/// \file  Distributes rows over clients. Source: Yurochkin et al. 2019; Hsu et al. 2019.
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
enum class PartitionKind { kIid, kSequential, kDirichlet };
/// Selects what the Dirichlet proportions apply to.
enum class DirichletScheme {
  /// Each client draws its own mixture of groups; clients have equal sizes. This is the UB-SMoE paper's description
  /// (Hsu et al.).
  kClient,
  kGroup,  ///< each group is divided over the clients; clients have unequal sizes (Yurochkin et al.)
};
constexpr auto names(PartitionKind) {
  return std::array{config::EnumName<PartitionKind>{"iid", PartitionKind::kIid},
                    config::EnumName<PartitionKind>{"sequential", PartitionKind::kSequential},
                    config::EnumName<PartitionKind>{"dirichlet", PartitionKind::kDirichlet}};
}
constexpr auto names(DirichletScheme) {
  return std::array{config::EnumName<DirichletScheme>{"client", DirichletScheme::kClient},
                    config::EnumName<DirichletScheme>{"group", DirichletScheme::kGroup}};
}

/// The config table `partition` of `[data]`. visit() documents the keys.
struct PartitionConfig {
  PartitionKind kind = PartitionKind::kIid;
  double alpha = 0.1;
  std::string key = "label";
  DirichletScheme scheme = DirichletScheme::kClient;
  void visit(auto& field) {
    field("kind", kind, "iid (shuffled and cut evenly), sequential (cut in file order) or dirichlet (skewed by `key`)");
    field("alpha", alpha, "dirichlet: concentration, > 0; smaller is more skewed");
    field("key", key,
          "dirichlet: key that rows are grouped by: label (the task kind); of telequad: spec (the same as label), "
          "source or docid");
    field("scheme", scheme,
          "dirichlet: client (each client draws its mixture of groups) or group (each group is divided over the "
          "clients)");
  }
  void resolve(const config::Table& table) const { table.check_above_zero("alpha", alpha); }
};

/// Returns the row indices of each client: disjoint and together all rows. Deterministic in `seed`.
/// \param labels  the group of each row; only kDirichlet reads their values
/// \throws kConfig if there is no client, or more clients than rows, if alpha is not above 0, or if kGroup leaves a
/// client empty in 1,000 draws
std::vector<std::vector<int64_t>> partition(std::span<const std::string> labels, int64_t clients,
                                            const PartitionConfig& config, uint64_t seed);

}  // namespace evenkeel::data
