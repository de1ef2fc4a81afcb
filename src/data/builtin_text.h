/// \file  Generates text for pre-training the built-in model. The text describes the built-in world
/// (data/builtin_world.h) in prose, lists and short dialogues. It never uses the instruction format, which the model
/// learns in fine-tuning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace evenkeel::data {

/// Returns `count` documents. Document i depends on (seed, i) only.
std::vector<std::string> builtin_documents(int64_t count, uint64_t seed);

}  // namespace evenkeel::data
