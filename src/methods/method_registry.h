/// \file  The table of methods: what each says of itself, and how its table in the config makes it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/format/config_table.h"
#include "methods/method.h"

namespace evenkeel {

/// What makes clients unequal under a method, and so what a budget beta means.
enum class MethodFamily {
  kSparsity,     ///< K_c experts per token, equal ranks
  kRank,         ///< rank r_c, all of the checkpoint's K experts
  kHomogeneous,  ///< made for equal clients; a budget gives K_c as above
};

/// A method's row in the table.
struct MethodEntry {
  std::string_view name;   ///< as in configs: "ub-smoe"
  std::string_view title;  ///< "UB-SMoE"
  std::string_view paper;  ///< one-line citation
  MethodFamily family;
  bool exact;                                  ///< the aggregate equals sum_c p_c delta W_c
  bool needs_experts;                          ///< refuses a dense model
  GateNorm gate_norm = GateNorm::kCheckpoint;  ///< default of `[method] gate_norm` (docs/ambiguities.md, R5)
  bool changes_base = false;  ///< hands over base deltas: factors beside every weight, higher by each round's ranks
  bool needs_individuals = false;  ///< aggregates from uploads one by one; sums over clients are not enough
  /// What leaves a client in a round, beside the report that each sends (train/local_training.h), for whoever has to
  /// agree to it.
  std::string_view sends = "A and B of every adapted weight";
  bool starts_from_adapter = true;  ///< `[lora] init`; else its factorisation cannot hold any adapter
  bool asks_gradients = false;      ///< of clients, before the first round: sums over some of their rows
  /// Reads the method's own table strictly, checks values, makes the method. An empty table gives the defaults.
  std::unique_ptr<FederatedMethod> (*make)(const config::Table& table) = nullptr;
  /// Writes the resolved keys of `table` into the resolved config.
  void (*write)(const config::Table& table, config::Writer& writer) = nullptr;

  /// K_c of a client of that budget, of a model that activates `max_top_k` experts: floor(K_max beta), or all of them
  /// with a rank method. 0 where no expert is left, and on a dense model.
  int64_t top_k(double budget, int64_t max_top_k) const;
  /// r_c of a client of that budget, where nobody says otherwise: round(r_max (0.2 + 0.8 beta)) with a rank method,
  /// which is the paper's 6, 8, 12, 20 and 12, 16, 24, 40 (docs/ambiguities.md, R22); else r_max.
  int64_t rank(double budget, int64_t max_rank) const;
  bool takes_unequal_ranks() const { return family == MethodFamily::kRank; }
  /// What "the global adapter at budget beta" can mean, of what is `asked` for (R25): with a rank method "a", cut to
  /// r_c with all experts, and "b", all ranks with K_c, which a dense model has not; else one thing, without a name.
  std::vector<std::string> readings(std::span<const std::string> asked, bool has_experts) const;
};

/// Experts per token that a budget leaves: floor(K_max beta).
int64_t experts_at(double budget, int64_t max_top_k);

/// Of a method without keys of its own.
struct NoOptions {
  void visit(auto& /*field*/) {}
};

/// The row of `Method`, whose own keys are the fields of `Options` (base/format/config_table.h; its resolve() checks
/// the values).
/// \param row  what the method says of itself, without make and write
template <typename Method, typename Options = NoOptions>
MethodEntry method_entry(MethodEntry row) {
  row.make = [](const config::Table& table) -> std::unique_ptr<FederatedMethod> {
    const auto options = config::read<Options>(table);
    if constexpr (std::is_same_v<Options, NoOptions>)
      return std::make_unique<Method>();
    else
      return std::make_unique<Method>(options);
  };
  row.write = [](const config::Table& table, config::Writer& writer) { config::read<Options>(table).visit(writer); };
  return row;
}

std::span<const MethodEntry> methods();
/// Adds a row for a method of another program (docs/tutorial-new-method.md): the first thing its main() does, because
/// references to rows do not survive it. \throws kConfig when the name is taken, kInternal for a row that makes
/// nothing.
void add_method(const MethodEntry& entry);
/// \throws kConfig listing the known names.
const MethodEntry& find_method(std::string_view name);

}  // namespace evenkeel
