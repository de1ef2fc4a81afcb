/// \file  Implements the server of a run: the method's server half, the client profiles and the shapes of the model. It
/// has neither weights nor rows, and it talks to clients only through a fabric (fed/exchange/fabric.h). The state of a
/// run is a Snapshot (fed/store/run_checkpoint.h). The server's functions take the state as an argument and do not
/// change it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fed/config/run_config.h"
#include "fed/exchange/fabric.h"
#include "fed/exchange/summed_upload.h"
#include "fed/exchange/unexportable_routing.h"
#include "fed/round/broadcasts.h"
#include "secure/round_context.h"

namespace evenkeel::fed {

class ClientPrivacy;

/// One way to evaluate the global state: a budget and, with a rank method, a rank evaluation mode.
struct EvaluationPoint {
  double budget = 1.0;
  /// For a rank method, whose clients differ in LoRA rank: "a" cuts the adapter to rank_at() of the budget and uses all
  /// experts, "b" uses the whole adapter and the experts of the budget (docs/ambiguities.md, R25). Empty for other
  /// methods.
  std::string rank_eval_mode{};
  scoring::ServedBy served_by = scoring::ServedBy::kRun;  ///< the program whose routing is used
  std::optional<scoring::ClientOfScore> client{};         ///< evaluate at this client's rank, on ClientOfScore::rows

  /// Returns true if the point is scored on a client's own test rows.
  bool own_rows() const { return client && client->rows == scoring::RowsOf::kOwn; }
};

/// Inputs of an aggregation other than the uploads, and its output `report`.
struct Aggregation {
  /// Reduction over the processes that aggregate the rest of the same round; null: there are none.
  const lora::Reduction* others = nullptr;
  /// The sum of uploads that clients masked with keys of their own; null: there is none.
  const UnmaskedSum* unmasked = nullptr;
  /// Adds the noise of a run that protects its clients, or accounts for the noise that the clients added. Null in other
  /// runs, and in a cluster process that only takes part in the reduction: its result must be discarded.
  ClientPrivacy* privacy = nullptr;
  /// Set to the summed reports of all clients if uploads are hidden (fed/exchange/summed_upload.h); null: not needed.
  std::optional<SummedReport>* report = nullptr;
};

/// The server of a run.
struct Server {
  RunConfig config;
  std::filesystem::path model_folder;  ///< folder of the base model; written into the adapters as their base
  models::ModelSpec model;
  lora::Sites sites;      ///< sites with an adapter
  lora::Sites all_sites;  ///< all sites of the model; the layout of an adapter folder depends on them
  std::unique_ptr<methods::FederatedMethod> method;
  std::vector<methods::ClientProfile> clients;
  /// Tasks to evaluate: the tasks of [evaluate] and, if the clients are nodes, the tasks whose rows are stored on the
  /// nodes.
  std::vector<std::string> tasks{};
  /// If the clients are nodes: the ids of the clients that reported test rows of their own. Otherwise nullopt, and the
  /// config says which clients have test rows.
  std::optional<std::set<int64_t>> clients_with_test_rows{};
  /// Names of the nodes, by client, of named clients that took their node by arrival (clients.assign). Round records
  /// state them.
  std::map<int64_t, std::string> nodes_by_arrival{};

  /// Returns true if the client has test rows of its own.
  bool has_test_rows(int64_t client) const {
    return clients_with_test_rows ? clients_with_test_rows->contains(client) : config.plan(client).tests();
  }
  /// Returns true if the clients are nodes of other owners, which nobody here vouches for.
  bool clients_are_nodes() const { return clients_with_test_rows.has_value(); }
  /// Returns true if the updates of a round are compared with the bounds of [clients].
  bool bounds_updates() const;
  /// Returns true if this process has to hold the uploads of all clients; false: sums over processes suffice.
  bool needs_uploads() const;
  uint64_t seed() const { return static_cast<uint64_t>(config->seed); }
  lora::LoraScale scale() const { return config->lora; }
  /// Returns the profiles of the clients with these ids, in that order.
  std::vector<methods::ClientProfile> profiles(std::span<const int64_t> ids) const;
  /// Returns true if the server gets sums of uploads alone.
  bool hides_uploads() const { return config->secure_aggregation.hides_uploads(); }
  /// Returns true if uploads are hidden and privacy.unit is "client": clients then add the noise.
  bool adds_noise_in_clients() const { return hides_uploads() && config->privacy.protects_clients(); }
  int64_t max_rank() const;  ///< the largest r_c of any client
  /// Returns the rank evaluation modes in which the run is scored (EvaluationPoint); {""} if it has none.
  std::vector<std::string> rank_eval_modes() const;
  /// Returns the smallest rank at which the clients with this budget train next. If no client has it, returns the
  /// method's rank for this budget.
  int64_t rank_at(const methods::ServerState& state, double budget) const;
  /// Returns the rank of the whole adapter, which FLoRIST's aggregation can make larger than max_rank().
  int64_t whole_rank(const methods::ServerState& state) const;
  /// Makes the method's view of the server.
  /// \param round  rounds that are done; the records count from 1
  methods::ServerView view(int64_t round, methods::GradientSum gradient_sum = {}) const;

  /// Makes the full sync: the whole shared state, for clients that join or return.
  StateUpdate full_sync(const methods::ServerState& state) const;

  /// Returns the learning rate of a round, or nullopt if the rate is constant.
  /// \param round  rounds that are done before it
  std::optional<double> scheduled_rate(int64_t round) const;
  /// Draws the participants of a round, without a check of the quorum. \param round  0: the first
  methods::RoundView drawn(int64_t round) const;
  /// Returns drawn() for the round after `state`. \throws kData for fewer than clients.quorum, except with Poisson
  /// sampling
  methods::RoundView draw(const methods::ServerState& state) const;
  /// Makes the training task of a participant.
  /// \param sent  cache of the round's encoded broadcasts; null: nothing is reused
  Task training_task(const methods::ServerState& state, const methods::ClientProfile& client,
                     const methods::RoundView& round, Broadcasts* sent = nullptr) const;
  /// Returns how the client's upload becomes a summand; nullopt if uploads are not hidden or the client is not drawn.
  /// \param drawn  the round with all clients that were drawn
  std::optional<SummedTerms> summed_terms(const methods::RoundView& drawn, const methods::ClientProfile& client) const;
  /// Returns summed_terms(), with the noise that the client adds. \throws kConfig as check_private_sum()
  std::optional<SummedTerms> complete_terms(const methods::ServerState& state, const methods::RoundView& drawn,
                                            const methods::ClientProfile& client) const;
  /// Checks before a round that its private sum can be made: that the noise is neither too large nor too small, and
  /// that the sum fits into its integers. \param noise  the noise multiplier \throws kConfig
  void check_private_sum(const methods::ServerState& state, double noise) const;
  /// Returns the layout of a summand. \param client  any drawn client; all have the same layout
  SummedLayout summed_layout(const methods::ServerState& state, const methods::ClientProfile& client) const;
  /// Returns the context of a round in which clients mask with their own keys. The caller adds run, config, attempt
  /// and fingerprints.
  /// \param roster  the clients that agree on masks, with their weights
  secure::RoundContext masked_terms(const methods::ServerState& state, const methods::RoundView& roster) const;
  /// Makes the update with the last round's change of the base, for clients that are not drawn in the next round. Its
  /// payload is empty if there was no change.
  StateUpdate change_update(const methods::ServerState& state) const;
  /// Aggregates uploads into the state after the round, from which a run can go on (check_state()).
  /// \param updates  uploads of all participants in their order; with Aggregation::others, the uploads in this process
  /// \throws kNumeric when a factor of the new state is not finite; kCheckpoint as check_state(); kConfig
  /// when the base changes against MethodEntry::changes_base; kData when fewer clients are left than
  /// secure_aggregation.threshold; as ClientPrivacy::release()
  methods::ServerState aggregate(const methods::ServerState& state, const methods::RoundView& round,
                                 std::span<const methods::ClientUpdate> updates, const Aggregation& with = {}) const;

  /// Makes the profile of the client that scores `point`: the evaluation client, which has no training rows and never
  /// trains (kEvaluator), or for own rows the client that has them.
  /// \throws kConfig when the budget leaves no expert
  methods::ClientProfile evaluator(const methods::ServerState& state, const EvaluationPoint& point) const;
  /// Makes a scoring task. With ServedBy::kRun its payload is the method's broadcast in the run's transport precision.
  /// Otherwise it is the whole adapter, as exported, in float32.
  /// \param ask  gives task and predictions; its other fields are set from `point`
  Task scoring_task(const methods::ServerState& state, const EvaluationPoint& point, Score ask) const;

  /// Runs the method's broadcast and prepare() for the client with the lowest rank, before anything is trained.
  /// \throws kConfig when the broadcast exceeds that client's rank
  void dry_run(const methods::ServerState& state) const;
  /// Returns the adapters and router options with which `client` would begin a round on `state`.
  methods::LocalSetup setup_of(const methods::ServerState& state, const methods::ClientProfile& client) const;
  /// Returns the router options at `point` that an exported adapter cannot hold.
  UnexportableRouting unexportable_routing(const methods::ServerState& state, const EvaluationPoint& point) const;

 private:
  /// Returns the positions in `round` of the clients of `updates`. \param others  null: all uploads are here
  methods::UploadShare share_of(const methods::RoundView& round, std::span<const methods::ClientUpdate> updates,
                                const lora::Reduction* others) const;
  methods::ServerState aggregate_uploads(const methods::ServerState& state, const methods::RoundView& round,
                                         std::span<const methods::ClientUpdate> updates,
                                         const lora::Reduction* others) const;
  methods::ServerState aggregate_sum(const methods::ServerState& state, const methods::RoundView& round,
                                     std::span<const methods::ClientUpdate> updates, const Aggregation& with) const;
  methods::ServerState aggregate_private(const methods::ServerState& state, const methods::RoundView& round,
                                         std::span<const methods::ClientUpdate> updates, const Aggregation& with) const;
};

/// Makes the profile of every client: its budget, experts per token K, LoRA rank and number of training rows.
/// \param examples  number of training rows by client; empty if nobody trains
/// \throws kConfig when a K is 0 on a sparse model, or when a client's machine profile does not fit
/// (fed/round/virtual_clock.h)
std::vector<methods::ClientProfile> make_clients(const RunConfig& config, const models::ModelSpec& model,
                                                 std::span<const size_t> examples);

/// Returns K = floor(K_max * budget) for a sparse model, 0 for a dense one.
/// \param who  start of the error message, for example "evaluate.budgets"
/// \throws kConfig when K would be 0 on a sparse model
int64_t active_experts(const models::ModelSpec& model, double budget, std::string_view who);

}  // namespace evenkeel::fed
