/// \file  What the clients of one machine hold alike, once: one frozen base, the tokenizer, how the run works, and what
/// the server told everybody.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "fed/config/experiment_config.h"
#include "fed/exchange/message.h"
#include "models/causal_lm.h"
#include "scoring/answer_journal.h"
#include "scoring/bert_score.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel {

/// What StateUpdate says, kept up to date. Threads: receive() may be called by clients that run side by side, in the
/// same round.
class SharedState {
 public:
  void receive(const StateUpdate& news);
  /// The change of the base that a task for the round after `round` brings; no matter when it is known already.
  /// \throws kData when one before it was missed.
  void receive_change(int64_t round, const AdapterState& base_delta);
  /// What the server of the same process holds: what its news up to this state would add up to, to the bit.
  void take(const ServerState& state);
  const Common& common() const { return common_; }
  /// The same on `device`, copied there when it is first asked for and kept until it changes; null of the processor.
  std::shared_ptr<const Residence> residence(c10::Device device);

 private:
  std::mutex mutex_;
  Common common_;
  int64_t round_ = 0;  // whose changes are in
  std::shared_ptr<const Residence> residence_{};
};

struct ClientContext {
  ExperimentConfig config;  ///< resolved
  std::unique_ptr<CausalLm> model;
  Tokenizer tokenizer;
  Sites sites;
  std::unique_ptr<FederatedMethod> method;
  std::optional<BertScorer> bert_scorer;  ///< of free-text tasks, when the config names an encoder
  std::unique_ptr<SharedState> shared = std::make_unique<SharedState>();
  std::shared_ptr<AnswerJournal> answers{};  ///< of evaluations, by batch; null: they begin anew when they are repeated
  std::string answers_of{};                  ///< what they depend on beside the run: in front of the journal's keys

  uint64_t seed() const { return static_cast<uint64_t>(config.seed); }
  LocalTraining training() const;
  ForwardOptions forward(const LocalSetup& setup) const;  ///< borrows the setup, which is placed
  /// `setup` where the base lies; on the processor as it is.
  LocalSetup placed(LocalSetup setup) const;
  EvaluationOptions evaluation() const;  ///< borrows the scorer
};

}  // namespace evenkeel
