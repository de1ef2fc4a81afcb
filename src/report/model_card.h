/// \file  README.md of an exported adapter or checkpoint: what the hub shows of it. Says what the run's records say.
#pragma once

#include <span>
#include <string>

#include "fed/config/experiment_config.h"
#include "report/run_records.h"
#include "report/serving.h"

namespace evenkeel {

/// What the card is of.
struct CardSubject {
  ExportFormat format = ExportFormat::kPeft;
  ServingFacts facts;
  LoraScale scale;                   ///< alpha and the rank that is written
  std::vector<std::string> targets;  ///< last names of the adapted modules
  std::string base_model{};  ///< the base model's name on the hub; empty: it has none, and no path stands for it
};

/// The same text for the same records. Scores are those of the last evaluated round.
std::string model_card(const RunRecords& run, const ExperimentConfig& config, const CardSubject& subject);

}  // namespace evenkeel
