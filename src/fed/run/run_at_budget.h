/// \file  A run that answers: its model with everything that its last committed round gives a client of a budget:
/// adapter, experts per token, gate weights, phi and output scales. Prepared as an evaluator is: what it says is what
/// an evaluation scores.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "fed/run/state_evaluation.h"

namespace evenkeel {

/// forward() borrows this object.
class RunAtBudget {
 public:
  struct Options {
    double budget = 1.0;
    std::string reading{};  ///< rank methods: a or b (TaskScore::reading); empty: the first of the run's
    std::function<void(ExperimentConfig&)> adjust{};  ///< e.g. storage and threads
  };

  /// \throws kIo when no run lives there; kConfig, kData, kCheckpoint as make_experiment().
  RunAtBudget(const std::filesystem::path& folder, const Options& options);

  const CausalLm& model() const { return *experiment_.fabric.place.model; }
  const Tokenizer& tokenizer() const { return experiment_.fabric.place.tokenizer; }
  /// \see Tokenizer::use_chat_template
  void use_chat_template(const std::filesystem::path& file) {
    experiment_.fabric.place.tokenizer.use_chat_template(file);
  }
  /// \see Tokenizer::use_date
  void use_date(const jinja::Date& date) { experiment_.fabric.place.tokenizer.use_date(date); }
  const ExperimentConfig& config() const { return experiment_.server.config; }
  ForwardOptions forward() const { return experiment_.fabric.place.forward(setup_); }

 private:
  Experiment experiment_;
  LocalSetup setup_;
};

}  // namespace evenkeel
