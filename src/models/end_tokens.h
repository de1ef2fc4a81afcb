/// \file  Which tokens end a text, from a model's folder, as transformers 5.23 reads them.
#pragma once

#include <cstdint>
#include <vector>

#include "models/checkpoint.h"

namespace evenkeel {

/// Ids each of which ends a generated text: `eos_token_id` of the generation_config.json beside config.json, one or a
/// list; where there is no such file, of config.json. A generation_config.json that names none means that nothing ends
/// a text but its length. Negative ids end nothing. \throws kCheckpoint (file, key) on values that are no whole numbers
std::vector<int64_t> ends_of_generation(const ModelConfig& config);

/// The id that training writes behind a text: the first `eos_token_id` of config.json, else the first of
/// ends_of_generation(); -1 where neither names one.
int64_t end_behind_texts(const ModelConfig& config);

}  // namespace evenkeel
