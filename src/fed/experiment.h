/// \file  A run's parts, built from its config: one frozen base, the tokenizer, everybody's rows, the clients and the
/// method.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/example.h"
#include "fed/config.h"
#include "methods/method.h"
#include "models/causal_lm.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel {

/// The training rows after tokenising, dealt out to the clients.
struct Shards {
  std::vector<std::vector<Example>> examples;  ///< [client][row]
  std::vector<std::vector<int64_t>> rows;      ///< [client][row], index into the training set as it was read
  std::vector<std::string> files;              ///< what was read; empty when generated
  int64_t cut = 0;                             ///< rows longer than the cutoff
  int64_t without_target = 0;                  ///< rows dropped because the cutoff left no target
};

/// Reads, tokenises and deals out the training rows. \throws kConfig, kData
Shards make_shards(const ExperimentConfig& config, const Tokenizer& tokenizer, const ModelSpec& model);

/// The K of clients at `budget`: all of the checkpoint's experts with a rank method, else active_experts().
int64_t client_top_k(const ExperimentConfig& config, const ModelSpec& model, double budget, std::string_view who);

/// beta_c, K_c, r_c and |D_c| of every client. \throws kConfig when some K_c is 0.
std::vector<ClientProfile> make_clients(const ExperimentConfig& config, const ModelSpec& model, const Shards& shards);

/// K = floor(K_max * budget) on a sparse model, 0 on a dense one. \throws kConfig naming `who` when that leaves no
/// expert.
int64_t active_experts(const ModelSpec& model, double budget, std::string_view who);

struct Experiment {
  ExperimentConfig config;  ///< resolved
  std::filesystem::path model_folder;
  std::unique_ptr<CausalLm> model;
  Tokenizer tokenizer;
  Sites sites;
  std::unique_ptr<FederatedMethod> method;
  GateNorm gate_norm = GateNorm::kCheckpoint;  ///< what the method asks of the routers, for the records
  Shards shards;                               ///< empty when the experiment is only evaluated
  std::vector<ClientProfile> clients;
  std::optional<BertScorer> bert_scorer;  ///< of free-text tasks, when the config names an encoder

  EvaluationOptions evaluation() const;  ///< borrows the scorer
  uint64_t seed() const { return static_cast<uint64_t>(config.seed); }
  LoraScale scale() const { return config.lora.scale(); }
  int64_t max_rank() const;  ///< the largest r_c
  /// \param bytes_up  grows by what clients send for each gradient_sum that they make on their own
  ServerView server(int64_t* bytes_up = nullptr) const;
  /// What `client`'s half of the method sees in the round after `state`; borrows all three.
  ClientView view(const ClientProfile& client, const ServerState& state, int64_t round, TensorMap& memory) const;
};

enum class Purpose {
  kTrain,
  kEvaluate,  ///< no rows
  kForesee,   ///< rows, but a model without weights (load_shape)
};

/// Asks the method, before anything is trained, what it would send to the weakest client and how that client would route;
/// fills in gate_norm. \throws kConfig when a client would get more than its rank.
void rehearse(Experiment& experiment, const ServerState& state);

/// Builds everything and sets this process' threads and arithmetic to what the config says. `config` is resolved. What
/// costs little comes first: rows, clients and, to train, whether memory suffices (fed/foresight.h); then the weights.
/// \throws kConfig, kData, kCheckpoint naming the file, the key and what was allowed.
Experiment make_experiment(ExperimentConfig config, Purpose purpose);

}  // namespace evenkeel
