/// \file  Splits rows over clients. Source: Yurochkin et al. 2019; Hsu et al. 2019.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel {

enum class PartitionKind { kIid, kSequential, kDirichlet };
enum class DirichletScheme {
  kClient,  ///< B, Hsu-like, the paper's wording: each client draws its mixture over groups; equal sizes
  kGroup,   ///< A, Yurochkin: each group is cut over clients; unequal sizes
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

struct PartitionConfig {
  PartitionKind kind = PartitionKind::kIid;
  double alpha = 0.1;
  std::string key = "label";
  DirichletScheme scheme = DirichletScheme::kClient;
  void visit(auto& field) {
    field("kind", kind, "iid: shuffled and cut evenly; sequential: cut in file order; dirichlet: skewed by `key`");
    field("alpha", alpha, "dirichlet: concentration, > 0; smaller is more skewed");
    field("key", key,
          "dirichlet: what rows are grouped by: label, the task kind; telequad: spec (also label), source or docid");
    field("scheme", scheme, "dirichlet: client draws its mixture of groups, or group is cut over clients");
  }
  void resolve(const config::Table& table) const { table.check_above_zero("alpha", alpha); }
};

/// Row indices of each client, disjoint, together all rows (kClient may leave up to clients-1 rows over; they are dealt
/// out).
/// \param labels  one per row; used by kDirichlet only.
/// \throws kConfig when there are more clients than rows, or a client would be empty.
std::vector<std::vector<int64_t>> partition(std::span<const std::string> labels, int64_t clients,
                                            const PartitionConfig& config, uint64_t seed);

}  // namespace evenkeel
