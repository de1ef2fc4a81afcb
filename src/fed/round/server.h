/// \file  The server of a run: the method's server half, the clients as it knows them, the shapes of the model. It has
/// no weights and no rows; what it needs of clients comes through a fabric (fed/exchange/fabric.h). Its functions are
/// pure in the state they are given; a run's state is a Snapshot (fed/store/run_checkpoint.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fed/config/experiment_config.h"
#include "fed/exchange/fabric.h"
#include "fed/exchange/unexportable_routing.h"
#include "fed/round/broadcasts.h"

namespace evenkeel {

/// One way of looking at the global state: a budget and, with a rank method, what it means.
struct EvaluationPoint {
  double budget = 1.0;
  std::string reading{};  ///< a or b, see TaskScore; else empty
  ServedBy served_by = ServedBy::kRun;
  std::optional<ClientOfScore> client{};  ///< at the rank of this client, on the rows that it says

  bool own_rows() const { return client && client->rows == RowsOf::kOwn; }
};

struct Server {
  ExperimentConfig config;             ///< resolved
  std::filesystem::path model_folder;  ///< named by the adapters it writes
  ModelSpec model;
  Sites sites;
  std::unique_ptr<FederatedMethod> method;
  std::vector<ClientProfile> clients;
  /// What is evaluated: those of [evaluate], and where clients are elsewhere those of the rows that they keep.
  std::vector<std::string> tasks{};
  /// Where clients are elsewhere, those that have test rows of their own, as they say; else the config says it.
  std::optional<std::set<int64_t>> clients_with_test_rows{};

  bool has_test_rows(int64_t client) const {
    return clients_with_test_rows ? clients_with_test_rows->contains(client) : config.has_test_rows(client);
  }
  uint64_t seed() const { return static_cast<uint64_t>(config.seed); }
  LoraScale scale() const { return config.lora; }
  int64_t max_rank() const;  ///< the largest r_c
  /// What the method's server half may look at in a round, 0 = the first.
  ServerView view(int64_t round, GradientSum gradient_sum = {}) const;

  /// Sums of gradients as the clients of `fabric` make them; borrows both. \param bytes_up  grows by what clients send
  GradientSum gradient_sums(Fabric& fabric, int64_t& bytes_up) const;
  /// What all clients hold alike in `state`, for those who begin or come back.
  StateUpdate full_sync(const ServerState& state) const;

  /// The learning rate of a round, 0 = the first; nothing where it is the same in every one.
  std::optional<double> scheduled_rate(int64_t round) const;
  /// The participants of the round that follows `state`.
  RoundView draw(const ServerState& state) const;
  /// \param sent  of the round so far, where there are several
  Task training_task(const ServerState& state, const ClientProfile& client, const RoundView& round,
                     Broadcasts* sent = nullptr) const;
  /// The change of the base that made `state`, for the clients that sit the next round out; nothing to say: no bytes.
  StateUpdate change_update(const ServerState& state) const;
  /// The state after the round. \param updates  of all participants, in their order; of some of them where `others`
  /// aggregate the rest of the same round with the same state, all at once
  ServerState aggregate(const ServerState& state, const RoundView& round, std::span<const ClientUpdate> updates,
                        const Reduction* others = nullptr) const;

  /// An evaluator as a client of that budget; a client's own rows are scored by the client itself. \throws kConfig when
  /// the budget leaves no expert.
  ClientProfile evaluator(const EvaluationPoint& point) const;
  /// As the run evaluates, the method's broadcast in the run's precision; as anybody else, the whole adapter as it is
  /// exported.
  Task scoring_task(const ServerState& state, const EvaluationPoint& point, Score ask) const;

  /// Asks the method, before anything is trained, what it would send to the weakest client, and how that one would
  /// begin. \throws kConfig when it would get more than its rank.
  void dry_run(const ServerState& state) const;
  /// How `client` would begin with what `state` sends it.
  LocalSetup setup_of(const ServerState& state, const ClientProfile& client) const;
  /// What of that does not travel with an exported adapter, at an evaluation.
  UnexportableRouting unexportable_routing(const ServerState& state, const EvaluationPoint& point) const;
};

/// beta_c, K_c, r_c and |D_c| of every client. \param examples  |D_c|, or nothing where nobody trains
/// \throws kConfig when some K_c is 0, or a client's device cannot simulate it (fed/round/virtual_clock.h).
std::vector<ClientProfile> make_clients(const ExperimentConfig& config, const ModelSpec& model,
                                        std::span<const size_t> examples);

/// K = floor(K_max * budget) on a sparse model, 0 on a dense one. \throws kConfig naming `who` when that leaves no
/// expert.
int64_t active_experts(const ModelSpec& model, double budget, std::string_view who);

}  // namespace evenkeel
