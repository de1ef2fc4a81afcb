/// \file  Opens a trained run as a model for inference at one budget. The model has everything that a client with this
/// budget receives after the last committed round, or the best one (fed/run/best_round.h): adapter, experts per token,
/// gate weights, phi and rescalers. It is prepared like an evaluation client, so its outputs are those that evaluations
/// score.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "fed/run/state_evaluation.h"

namespace evenkeel::fed {

/// A run's model with the setup of one budget. The result of forward() borrows this object.
class RunAtBudget {
 public:
  /// Options for opening a run.
  struct Options {
    double budget = 1.0;
    std::string base{};                               ///< folder of a base model that was moved; empty: it was not
    bool best = false;                                ///< true: the best round, false: the last one
    std::string rank_eval_mode{};                     ///< rank evaluation mode, a or b; empty: the first one of the run
    std::function<void(ExperimentConfig&)> adjust{};  ///< changes the config, e.g. storage and threads
  };

  /// Loads the model, the round and its setup.
  /// \throws as config_with_base(); kConfig, kData, kCheckpoint as make_experiment()
  RunAtBudget(const std::filesystem::path& folder, const Options& options);

  const models::CausalLm& model() const { return *experiment_.fabric.context.model; }
  const tokenizer::Tokenizer& tokenizer() const { return experiment_.fabric.context.tokenizer; }
  /// \see Tokenizer::use_chat_template
  void use_chat_template(const std::filesystem::path& file) {
    experiment_.fabric.context.tokenizer.use_chat_template(file);
  }
  /// \see Tokenizer::use_date
  void use_date(const jinja::Date& date) { experiment_.fabric.context.tokenizer.use_date(date); }
  const RunConfig& config() const { return experiment_.server.config; }
  models::ForwardOptions forward() const { return experiment_.fabric.context.forward(setup_); }

 private:
  Experiment experiment_;
  methods::LocalSetup setup_;
};

}  // namespace evenkeel::fed
