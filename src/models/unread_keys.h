/// \file  Warns of settings in a model's folder that transformers applies and this program does not.
#pragma once

#include "models/checkpoint.h"

namespace evenkeel::models {

/// Logs a warning, once per file, that names the keys which transformers' generate() applies to every answer, greedy
/// ones too, and which are not applied here (repetition_penalty, suppress_tokens, ...). Sampling is up to the caller
/// here: `generate` has flags for it, evaluation is greedy. `eos_token_id` is read (models/end_tokens.h).
/// \param generation  generation_config.json
void warn_of_generation_keys(const ModelConfig& generation);

/// Logs a warning, once per file, if config.json names code of the folder for the model (`auto_map`). It is never run.
/// transformers runs it with trust_remote_code=True only, and else computes the family of `model_type`, as here.
void warn_of_own_code(const ModelConfig& config);

}  // namespace evenkeel::models
