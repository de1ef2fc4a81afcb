/// \file  Generates text for pre-training the built-in models. The text describes a built-in world
/// (data/builtin_world.h) in prose, lists and short dialogues. It never uses the instruction format, which the model
/// learns in fine-tuning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/builtin_world.h"

namespace evenkeel::data {

/// Returns `count` documents. Document i depends on (seed, i) and the world only.
std::vector<std::string> builtin_documents(int64_t count, uint64_t seed,
                                           world::WorldSize size = world::WorldSize::kSmall);

}  // namespace evenkeel::data
