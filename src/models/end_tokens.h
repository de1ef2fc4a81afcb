/// \file  Reads from a model's folder which tokens end a text, as transformers 5.23 does.
#pragma once

#include <cstdint>
#include <vector>

#include "models/checkpoint.h"

namespace evenkeel::models {

/// Returns the token ids that end a generated text. They are the `eos_token_id` (one id or a list) of
/// generation_config.json in the folder of config.json. If generation_config.json does not exist, config.json is read
/// instead. If it exists without `eos_token_id`, the result is empty and only the length ends a text. Negative ids are
/// ignored.
/// \throws kCheckpoint naming file and key when a value is not an integer
std::vector<int64_t> ends_of_generation(const ModelConfig& config);

/// Returns the token id that training appends to a text. It is the first `eos_token_id` of config.json, or else the
/// first of ends_of_generation(), or else -1.
int64_t end_behind_texts(const ModelConfig& config);

}  // namespace evenkeel::models
