/// \file  Declares the registry of methods. An entry has the properties of a method and constructs the method from its
/// config table.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/format/config_table.h"
#include "base/format/config_values.h"
#include "methods/method.h"

namespace evenkeel::methods {

/// Classifies methods by how clients differ. This determines the meaning of a budget beta.
enum class MethodFamily {
  kSparsity,     ///< clients use K_c experts per token and equal ranks
  kRank,         ///< clients use rank r_c and all K experts of the checkpoint
  kHomogeneous,  ///< designed for equal clients; a budget sets K_c as with kSparsity
};

/// Says whether sums over the clients of a round are enough for aggregate(), so that single uploads can stay hidden
/// ([secure_aggregation]).
enum class FromSums {
  kNo,           ///< no: MethodEntry::why_single says why
  kYes,          ///< yes, with all its options
  kWithOptions,  ///< yes, but FederatedMethod::check_sums() refuses some values of its options
};

/// A metric of a method's client half (StepView::metrics), and the values that its mean over a round can have.
struct MetricRange {
  std::string_view name;
  double least = 0, most = std::numeric_limits<double>::max();
};

struct MethodDescription;

/// Describes a method: one entry of the registry.
struct MethodEntry {
  std::string_view name;   ///< name in configs, as in "ub-smoe"
  std::string_view title;  ///< printed name, as in "UB-SMoE"
  std::string_view paper;  ///< one-line citation
  MethodFamily family;
  bool exact;                                          ///< true: the aggregate equals sum_c p_c delta W_c
  bool needs_experts;                                  ///< true: the method rejects dense models
  nn::GateNorm gate_norm = nn::GateNorm::kCheckpoint;  ///< default of `[method] gate_norm` (docs/ambiguities.md, R5)
  bool changes_base = false;  ///< true: the method returns base deltas; the rank of the change grows every round
  /// True: aggregate() weighs each expert of each client, so rules that order or choose uploads would break its weights
  /// ([aggregation] rule).
  bool weighs_experts = false;
  bool needs_individuals = false;  ///< true: aggregate() reads single uploads; false: sums over clients suffice
  FromSums from_sums = FromSums::kNo;
  /// Why sums are not enough, for FromSums::kNo. The text completes a sentence that begins with "method NAME ".
  std::string_view why_single = "asks for sums that have no names";
  /// Describes what a client uploads in a round in addition to its report (train/local_training.h). A node's operator
  /// reads it before agreeing to the run.
  std::string_view sends = "A and B of every adapted weight";
  /// True: `[lora] init` is supported. False: the factorisation cannot represent every adapter.
  bool starts_from_adapter = true;
  /// True: clients compute sums of gradients over some of their rows before the first round.
  bool asks_gradients = false;
  /// The metrics that the client half may report. A server refuses other metrics from nodes. Borrowed: the memory must
  /// never be freed.
  std::span<const MetricRange> metrics{};
  /// Creates the method from its config table, which may be empty.
  /// \throws kConfig on an unknown key or a bad value
  std::function<std::unique_ptr<FederatedMethod>(const config::Table& table)> make{};
  /// Writes every key of the method to `writer`, with its value in `table` or else its default.
  std::function<void(const config::Table& table, config::Writer& writer)> write{};
  /// Lists the same keys with their values.
  std::function<void(const config::Table& table, config::ValueLister& lister)> list{};
  /// True: what a client uploads depends on its rows only through the gradients of the task loss of single rows. No
  /// hook of the client half uses the rows otherwise. Then noise in these gradients makes the upload private
  /// (train/private_steps.h).
  bool rows_by_gradients = false;
  /// True: sites are independent of each other. Without training in between, prepare() and upload() then give a site
  /// the same factors, and the same extras, whether they get it alone or with others. A server that compares an upload
  /// with what was broadcast (fed/round/update_size.h) then has one site in memory.
  bool by_site = false;
  /// Description of a method that is not compiled into the program (methods/described_method.h); null if it is.
  std::shared_ptr<const MethodDescription> described{};
  /// False: the entry was read from a run folder, and hooks that the method overrides cannot be called.
  bool has_hooks = true;

  /// Returns K_c for a budget: floor(K_max beta), or `max_top_k` for a rank method. It is 0 if the budget is too small
  /// for one expert, and on a dense model.
  int64_t top_k(double budget, int64_t max_top_k) const;
  /// Returns the default r_c for a budget. For a rank method it is round(r_max (0.2 + 0.8 beta)), at least 1. With
  /// budgets 1/8, 1/4, 1/2 and 1 this gives the paper's 6, 8, 12, 20 for r_max = 20 and 12, 16, 24, 40 for r_max = 40
  /// (docs/ambiguities.md, R22). For other methods it is r_max.
  int64_t rank(double budget, int64_t max_rank) const;
  /// Returns true if clients may have different ranks.
  bool takes_unequal_ranks() const { return family == MethodFamily::kRank; }
  /// Returns the rank evaluation modes in `asked` that apply (docs/ambiguities.md, R25). A rank method has mode "a",
  /// the adapter cut to r_c with all experts, and mode "b", the whole adapter with K_c experts; on a dense model only
  /// "a". Other methods have one mode without a name, "", whatever is asked.
  std::vector<std::string> rank_eval_modes(std::span<const std::string> asked, bool has_experts) const;
};

/// Returns the experts per token that a budget allows: floor(K_max beta).
int64_t experts_at(double budget, int64_t max_top_k);

/// Options of a method without config keys.
struct NoOptions {
  void visit(auto& /*field*/) {}
};

/// Completes the entry of `Method` with make(), write() and list(). The fields of `Options` are the method's config
/// keys (base/format/config_table.h), and its resolve() checks the values.
/// \param row  the entry without make, write and list
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
  row.list = [](const config::Table& table, config::ValueLister& lister) {
    config::read<Options>(table).visit(lister);
  };
  return row;
}

/// Checks that a method can be computed from sums, before a run begins.
/// \throws kConfig saying why it cannot, and listing the methods that can
void check_from_sums(const MethodEntry& entry);

/// Checks that a method needs only the sum of clients' changes, so that noise in this sum hides any client.
/// \throws kConfig saying what else it needs, and listing the methods that pass
void check_client_privacy(const MethodEntry& entry);

/// Returns all registered methods. References to entries stay valid.
const std::deque<MethodEntry>& methods();
/// Registers a method that is not compiled into the library (docs/tutorial-new-method.md). Call it before threads
/// start. The name of a described method may be registered again unless both entries have hooks, because two run
/// folders can hold the method with different keys.
/// \throws kConfig when the name is taken; kInternal when `make`, `write` or `list` is empty
void add_method(const MethodEntry& entry);
/// Returns the entry of a method: the last one of that name that has hooks, or else the last one.
/// \throws kConfig listing the known names when the name is unknown
const MethodEntry& find_method(std::string_view name);
/// Checks that noise in the gradients of single rows makes a method's uploads private (rows_by_gradients).
/// \throws kConfig listing the methods that pass
void require_rows_by_gradients(const MethodEntry& entry);

}  // namespace evenkeel::methods
