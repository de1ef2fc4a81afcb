/// \file  Holds everything that the clients of one process share: one frozen base, the tokenizer, the config, and the
/// shared state that the server sent (fixed factors and the change of the base).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "fed/config/run_config.h"
#include "fed/exchange/example_privacy.h"
#include "fed/exchange/message.h"
#include "fed/exchange/noisy_summand.h"
#include "fed/exchange/test_rows.h"
#include "fed/exchange/upload_masks.h"
#include "models/causal_lm.h"
#include "scoring/answer_journal.h"
#include "scoring/bert_score.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::fed {

/// The shared state, updated from the server's messages. Threads: clients of one round may call receive_change(),
/// residence() and graphs() at the same time. No client may train during receive() and take().
class SharedState {
 public:
  /// Applies an update. \throws kData as receive_change()
  void receive(const StateUpdate& news);
  /// Applies the change of the base that arrives with a task for the round after `round`. A change that is already
  /// applied is ignored.
  /// \throws kData when an earlier change was missed
  void receive_change(int64_t round, const lora::AdapterState& base_delta);
  /// Takes over the shared state of a server in this process; tensors share memory. The values are the same as after
  /// receiving all updates.
  void take(const methods::ServerState& state);
  /// Returns the state itself, which the next update changes.
  const methods::Common& common() const { return common_; }
  /// Returns the shared state on `device`. It is copied on first use and kept until the state changes. A changed state
  /// of the same sizes is copied to the same addresses, which CUDA graphs need, unless a client still uses the old
  /// state. \return null for the CPU
  std::shared_ptr<const train::Residence> residence(c10::Device device);
  /// Returns the CUDA graphs of the base, which are kept as long as this object.
  std::shared_ptr<train::StepGraphs> graphs(nn::EngineKind engine);

 private:
  std::mutex mutex_;
  methods::Common common_;
  int64_t round_ = 0;  // last round with an applied change
  std::shared_ptr<const train::Residence> residence_{};
  std::weak_ptr<const train::Residence> lent_{};  // what residence() made last
  train::KeptMemory residence_memory_{};
  std::shared_ptr<train::StepGraphs> graphs_{};
};

/// Everything that the clients of one process share.
struct ClientContext {
  RunConfig config;
  std::unique_ptr<models::CausalLm> model;
  tokenizer::Tokenizer tokenizer;
  lora::Sites sites;
  std::unique_ptr<methods::FederatedMethod> method;
  std::optional<scoring::BertScorer> bert_scorer;  ///< scores free-text answers; set if the config names an encoder
  std::unique_ptr<SharedState> shared = std::make_unique<SharedState>();
  /// Stores evaluation answers by batch; null: a repeated evaluation starts again.
  std::shared_ptr<scoring::AnswerJournal> answers{};
  std::unique_ptr<TestRowsCache> prepared = std::make_unique<TestRowsCache>();
  /// Makes training private for single rows; null: it is not. Clients then give no sums of gradients.
  std::shared_ptr<ExamplePrivacy> privacy{};
  /// On a node, which has one client: masks its summands with its own keys. Null: masks are simulated.
  std::shared_ptr<UploadMasks> masks{};
  /// On a node: key and privacy account of the noise on its client's change. Null: the key is derived from the seed.
  std::shared_ptr<ClientNoise> noise{};
  std::string answers_of{};  ///< prefix of the journal's keys: a hash of config, state and files; may be empty

  uint64_t seed() const { return static_cast<uint64_t>(config->seed); }
  /// Returns `[train]` with the engine, dtype and kernels of `[model]`, and the shared state on the device of the base.
  train::LocalTraining training() const;
  /// Returns the CUDA graphs of the model; null if model.graphs is off or the base is on the CPU.
  std::shared_ptr<train::StepGraphs> graphs() const;
  /// Returns the options of a forward pass. Borrows `setup`, a result of on_device(), and the shared state.
  models::ForwardOptions forward(const methods::LocalSetup& setup) const;
  /// Copies `setup` to the device of the base. On the CPU it is returned unchanged.
  methods::LocalSetup on_device(methods::LocalSetup setup) const;
  scoring::EvaluationOptions evaluation() const;  ///< borrows bert_scorer and answers
  /// Reads, checks and tokenises test rows, or returns the cached rows of an earlier call. The model may be without
  /// weights.
  /// \throws kData, kIo as PreparedTask and when files cannot be read
  std::shared_ptr<const scoring::PreparedTask> test_rows(const TestRowsKey& key) const;
};

}  // namespace evenkeel::fed
