/// \file  Writes the model card (README.md) of an exported adapter or checkpoint, from the run's records.
#pragma once

#include <span>
#include <string>

#include "fed/config/experiment_config.h"
#include "records/run_records.h"
#include "report/serving.h"

namespace evenkeel::report {

/// The export that a card describes.
struct CardSubject {
  ExportFormat format = ExportFormat::kPeft;
  ServingFacts facts;
  lora::LoraScale scale;             ///< alpha and the exported rank
  std::vector<std::string> targets;  ///< last names of the adapted modules
  std::string base_model{};          ///< name of the base model on the hub; empty: none, and no local path is written
};

/// Returns the card's text, with the scores of the last evaluated round. Equal records give equal text.
std::string model_card(const records::RunRecords& run, const fed::RunConfig& config, const CardSubject& subject);

}  // namespace evenkeel::report
