/// \file  Defines the lines of rounds.jsonl, evaluations.jsonl, missing_scores.jsonl and items/round-N.jsonl. The keys
/// of a line are the names in visit(), in that order (base/format/record.h). Most values are measured. Budgets, ranks,
/// weights, gate_norm and lr follow from the config, and times under "simulated" are computed
/// (fed/round/virtual_clock.h). Values under "seconds" differ from run to run; all others are reproducible.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/plain/json.h"
#include "fed/config/privacy_section.h"
#include "fed/exchange/message.h"
#include "fed/store/journal.h"
#include "methods/protocol.h"
#include "nn/moe/router_options.h"
#include "scoring/task_score.h"

namespace evenkeel::fed {

/// Measures of one client of a round, or of all clients together.
struct RoundMeasures {
  int64_t steps = 0, tokens = 0, targets = 0;  ///< optimiser steps; tokens; tokens with a loss
  /// Mean loss per target token, natural log; absent if no client tells its loss (train/private_steps.h).
  std::optional<double> loss;
  std::optional<double> first_loss, last_loss;  ///< loss of the first and last step; of a round, mean over clients
  int64_t bytes_up = 0, bytes_down = 0;         ///< bytes sent; of a round, all traffic, with the tasks of lost clients
  Traffic bytes_up_parts, bytes_down_parts;     ///< bytes by content, see lora/payload.h and fed/exchange/message.h
  double experts_per_token = 0;                 ///< mean over MoE layers; 0 for a dense model
  double flops = 0;  ///< of training: forward and backward, adapters included, as models/cost.h counts them
  std::map<std::string, double> metrics;  ///< measured by the method's client half; of a round, means weighted by steps

 protected:
  void visit_work(auto& field) {
    field("tokens", tokens);
    field("targets", targets);
  }
  void visit_losses(auto& field) {
    field("loss", loss);
    field("first_loss", first_loss);
    field("last_loss", last_loss);
  }
  void visit_traffic(auto& field) {
    field("bytes_up", bytes_up);
    field("bytes_down", bytes_down);
    field("bytes_up_parts", bytes_up_parts);
    field("bytes_down_parts", bytes_down_parts);
  }
  void visit_measures(auto& field) {
    field("experts_per_token", experts_per_token);
    field("flops", flops);
    field("metrics", metrics);
  }
};

/// Times of a client's round in simulated time (fed/round/virtual_clock.h), in seconds.
struct SimulatedClient {
  std::string device;                  ///< name in [client_profiles], not a device of LibTorch
  double down = 0, train = 0, up = 0;  ///< download, training, upload
  double start = 0, end = 0;           ///< since the beginning of the run

  void visit(auto& field) {
    field("device", device);
    field("down", down);
    field("train", train);
    field("up", up);
    field("start", start);
    field("end", end);
  }
};

/// One client of a round.
struct ClientOfRound : RoundMeasures {
  int64_t id = 0;
  std::optional<std::string> name;            ///< set if the config names the client
  double budget = 1;                          ///< share of the experts per token that it can afford, in (0, 1]
  int64_t top_k = 0, rank = 0, examples = 0;  ///< experts per token, LoRA rank, number of training rows
  double weight = 0;                          ///< weight in the aggregate, p_c; the weights of a round sum to 1
  double seconds = 0;                         ///< wall time of the local training
  /// True: tokens, losses, metrics and FLOPs of the client are not written, because secure aggregation hides its upload
  /// or [privacy] protects whole clients.
  bool withheld = false;
  bool of_unknown_size = false;                   ///< true: `examples` and `steps` are not written either
  std::optional<SimulatedClient> simulated;       ///< set if clients have machine profiles
  std::optional<train::PrivateReport> privacy{};  ///< set if DP-SGD protected single rows (train/private_steps.h)
  /// Name of the client's node, set if the client has a name and its node was dealt by arrival (Placement::kArrival).
  std::optional<std::string> node;

  void visit(auto& field) {
    field("id", id);
    field("name", name);
    field("node", node);
    field("budget", budget);
    field("top_k", top_k);
    field("rank", rank);
    of_unknown_size = !field.holds("examples", !of_unknown_size);
    if (!of_unknown_size) field("examples", examples);
    field("weight", weight);
    if (!of_unknown_size) field("steps", steps);
    withheld = !field.holds("tokens", !withheld);
    if (!withheld) visit_work(field);
    if (!withheld) visit_losses(field);
    visit_traffic(field);
    if (!withheld) visit_measures(field);
    field("seconds", seconds);
    field("simulated", simulated);
    field("privacy", privacy);
  }
};

/// How secure aggregation summed the uploads of a round ([secure_aggregation]).
struct SummedRoundRecord {
  SecureMode mode = SecureMode::kSums;
  bool simulated = false;           ///< true: the keys of all masks follow from the seed, so nothing is hidden
  int64_t bits = 32;                ///< width of the integers that are summed
  int64_t clients = 0, values = 0;  ///< number of summed uploads; number of values in each
  int64_t beyond_range = 0;         ///< number of values of all clients that were clipped to the range

  void visit(auto& field) {
    field("mode", mode);
    field("simulated", simulated);
    field("bits", bits);
    field("clients", clients);
    field("values", values);
    field("beyond_range", beyond_range);
  }
};

/// How a round protected its clients ([privacy] unit = "client"). All values follow from the noisy sum, the config and
/// the privacy account.
struct ClientPrivacyRecord {
  PrivacyUnit unit = PrivacyUnit::kClient;
  /// Neighbouring sets of clients: "zero-out", a client's change is zero; "add-or-remove", a client is absent.
  std::string relation{};
  PrivacySampling sampling = PrivacySampling::kAll;
  double probability = 1;      ///< sampling probability q that the account assumes; 1: no amplification by sampling
  double noise = 0, clip = 0;  ///< noise multiplier; bound of the norm of one client's change
  double divisor = 0;          ///< the noisy sum was divided by this
  int64_t values = 0;          ///< number of values in the sum
  /// Largest epsilon of any client over all rounds so far, at `delta`, and the Renyi order that gives it.
  double epsilon = 0, order = 0, delta = 0;
  /// The same epsilon from the privacy loss distribution of the continuous Gaussian (privacy/loss_distribution.h), for
  /// comparison; nullopt if it cannot be computed or is infinite. No budget is checked with it.
  std::optional<double> epsilon_pld{};
  std::optional<double> budget{};  ///< epsilon that no client exceeds; nullopt: no limit
  /// Estimated norm of the summed changes divided by the norm of their noise, and the largest possible ratio.
  double signal = 0, signal_bound = 0;
  std::optional<double> share_within{};  ///< noisy share of clients within `clip`; set if the bound adapts
  /// True: there is no guarantee, because of PrivacySection::is_simulated() or because the noise that clients add was
  /// drawn in this run, not by nodes.
  bool simulated = false;
  std::optional<int64_t> simulated_cohort{};  ///< privacy.noise_cohort, if it is set
  /// Set if the clients added the noise: the number of honest clients whose noise alone reaches `noise`.
  std::optional<int64_t> honest{};
  std::optional<std::string> ended_by{};  ///< set if the run ends with this round: the reason

  void visit(auto& field) {
    field("unit", unit);
    field("relation", relation);
    field("sampling", sampling);
    field("probability", probability);
    field("noise", noise);
    field("clip", clip);
    field("divisor", divisor);
    field("values", values);
    field("epsilon", epsilon);
    field("order", order);
    field("delta", delta);
    field("epsilon_pld", epsilon_pld);
    field("budget", budget);
    field("signal", signal);
    field("signal_bound", signal_bound);
    field("share_within", share_within);
    field("simulated", simulated);
    field("simulated_cohort", simulated_cohort);
    field("honest", honest);
    field("ended_by", ended_by);
  }
};

/// A client that received its task but whose reply is not part of the round.
struct LostClient {
  int64_t id = 0;
  std::optional<std::string> name;
  std::string reason;
  int64_t bytes_down = 0;  ///< size of its task; counted under "tasks_of_lost" in the round's bytes_down_parts
  std::optional<SimulatedClient> simulated;  ///< set if the reply was late in simulated time
  std::optional<double> moved{};             ///< norm of its update; set if a bound of [clients] excluded the update

  void visit(auto& field) {
    field("id", id);
    field("name", name);
    field("reason", reason);
    field("bytes_down", bytes_down);
    field("simulated", simulated);
    field("moved", moved);
  }
};

/// Times of a round in simulated time, in seconds.
struct SimulatedRound {
  double start = 0, end = 0;  ///< since the beginning of the run, without the time of evaluations
  double took = 0;            ///< length of the round, including client_profiles.server_seconds

  void visit(auto& field) {
    field("start", start);
    field("end", end);
    field("took", took);
  }
};

/// How the clients of a round used the experts, by the measures of nn/moe/utilization.h. Lists have one entry per MoE
/// layer.
struct ExpertUse {
  std::vector<std::string> layers;
  std::vector<std::vector<double>> utilization;  ///< [L][E]
  std::vector<double> entropy, gini;
  std::vector<int64_t> dead_experts, nearly_dead_experts;
  double entropy_mean = 0, entropy_std = 0;            ///< over layers
  double entropy_joint = 0, entropy_unnormalized = 0;  ///< over all layers together
  double gini_mean = 0;                                ///< over layers

  void visit(auto& field) {
    field("layers", layers);
    field("utilization", utilization);
    field("entropy", entropy);
    field("gini", gini);
    field("dead_experts", dead_experts);
    field("nearly_dead_experts", nearly_dead_experts);
    field("entropy_mean", entropy_mean);
    field("entropy_std", entropy_std);
    field("entropy_joint", entropy_joint);
    field("entropy_unnormalized", entropy_unnormalized);
    field("gini_mean", gini_mean);
  }
};

/// The method's own tensors, for example UB-SMoE's phi (one number per expert), as name -> nested lists of numbers.
struct Diagnostics {
  OrderedJson lists = OrderedJson::object();
};
OrderedJson to_json(const Diagnostics& diagnostics);
void from_json(const JsonView& view, Diagnostics& diagnostics);

/// Wall time of a round by phase, in seconds. `train`, `steps` and `move` are sums over the clients.
struct PhaseSeconds {
  double broadcast = 0, train = 0, upload = 0, aggregate = 0;
  double tokens_per_second = 0;  ///< all tokens of the round / `train`
  double round = 0;              ///< from first task to aggregate, in the server's process
  double steps = 0;              ///< part of `train` in optimiser steps
  std::optional<double> move;    ///< part of `train` in copies to the device and back; nullopt on the CPU

  void visit(auto& field) {
    field("broadcast", broadcast);
    field("train", train);
    field("upload", upload);
    field("aggregate", aggregate);
    field("tokens_per_second", tokens_per_second);
    field("round", round);
    field("steps", steps);
    field("move", move);
  }
};

/// A line of rounds.jsonl.
struct RoundRecord : RoundMeasures {
  int64_t round = 0;  ///< 1 = the first
  std::string method;
  nn::GateNorm gate_norm = nn::GateNorm::kCheckpoint;  ///< method.gate_norm of the run's config
  /// True if the gate weights of the selected experts sum to 1, by gate_norm or by the checkpoint's norm_topk_prob.
  std::optional<bool> gates_sum_to_one;
  int64_t participants = 0;
  bool withheld = false;     ///< true: neither measures of the clients' rows nor sums of them are written
  std::optional<double> lr;  ///< learning rate; nullopt if it is the same in all rounds
  /// Written as keys of the round itself; nullopt for a dense model, or if a client's routing counts are withheld.
  std::optional<ExpertUse> experts;
  Diagnostics diagnostics;
  std::vector<ClientOfRound> clients;  ///< in id order
  PhaseSeconds seconds;
  std::optional<std::vector<LostClient>> lost;          ///< in id order; nullopt if no client was lost
  std::optional<SimulatedRound> simulated;              ///< set if clients have machine profiles
  std::optional<SummedRoundRecord> secure_aggregation;  ///< set if secure aggregation summed the uploads
  std::optional<ClientPrivacyRecord> privacy;           ///< set if [privacy] protects whole clients

  void visit(auto& field) {
    field("round", round);
    field("method", method);
    field("gate_norm", gate_norm);
    field("gates_sum_to_one", gates_sum_to_one);
    field("participants", participants);
    field("lr", lr);
    visit_losses(field);
    withheld = !field.holds("tokens", !withheld);
    if (field.holds("steps", !withheld || steps > 0)) field("steps", steps);
    if (!withheld) visit_work(field);
    visit_traffic(field);
    if (!withheld) visit_measures(field);
    // A line has the keys of `experts` exactly if it has "layers". A reader makes the struct, a writer has it.
    if (field.holds("layers", experts.has_value())) (experts ? *experts : experts.emplace()).visit(field);
    field("diagnostics", diagnostics);
    field("clients", clients);
    field("seconds", seconds);
    field("lost", lost);
    field("simulated", simulated);
    field("secure_aggregation", secure_aggregation);
    field("privacy", privacy);
  }
};

/// A line of evaluations.jsonl: one score.
struct EvaluationRecord {
  int64_t round = 0;  ///< rounds done; 0: before the first
  std::string method;
  scoring::TaskScore score;  ///< written as keys of the line itself

  void visit(auto& field) {
    field("round", round);
    field("method", method);
    score.visit(field);
  }
};

/// A line of items/round-N.jsonl: what each test row contributed to one score. Written if evaluate.items is true.
struct ItemRecord {
  int64_t round = 0;  ///< rounds done
  std::string task;
  double budget = 1;
  std::string rank_eval_mode{};  ///< rank evaluation mode (TaskScore::rank_eval_mode)
  scoring::ServedBy served_by = scoring::ServedBy::kRun;
  std::optional<scoring::ClientOfScore> client{};  ///< as TaskScore::client, written as keys of the line itself
  scoring::ItemScores items{};                     ///< written as keys of the line itself

  /// Returns true if both are of the same round, task, evaluation point and client.
  bool same_score(const ItemRecord& other) const {
    return round == other.round && task == other.task && budget == other.budget &&
           rank_eval_mode == other.rank_eval_mode && served_by == other.served_by && client == other.client;
  }
  void visit(auto& field) {
    field("round", round);
    field("task", task);
    field("budget", budget);
    field("rank_eval_mode", rank_eval_mode);
    field("served_by", served_by);
    if (field.holds("client", client.has_value())) (client ? *client : client.emplace()).visit(field);
    items.visit(field);
  }
};

/// A line of missing_scores.jsonl: a score that a client did not return.
struct MissingScore {
  int64_t round = 0;  ///< rounds done
  std::string task;
  double budget = 1;
  std::string rank_eval_mode{};
  /// kOwn: the score on the client's own rows is missing; kAll: the client's part of the score on all rows is missing.
  scoring::RowsOf rows = scoring::RowsOf::kAll;
  int64_t client = 0;
  std::optional<std::string> name{};  ///< set if the client has a name
  std::string reason;

  void visit(auto& field) {
    field("round", round);
    field("task", task);
    field("budget", budget);
    field("rank_eval_mode", rank_eval_mode);
    field("rows_of", rows);
    field("client", client);
    field("client_name", name);
    field("reason", reason);
  }
};

}  // namespace evenkeel::fed
