/// \file  Provides the tables of BERTScore: the best layer of each encoder by agreement with human judgement, and the
/// baselines for rescaling. Source: the bert_score package 0.3.13.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "scoring/match_score.h"

namespace evenkeel::scoring {

/// Returns the layer for an encoder's Hugging Face name, with or without the owner ("FacebookAI/roberta-large"), or
/// nullopt if the table lacks the name.
std::optional<int64_t> default_layer(std::string_view name);

/// Reads the row of `layer` from a baseline file of the package: a header "LAYER,P,R,F", and one line of four numbers
/// per layer.
/// \throws kData naming file and line
MatchScore load_baseline(const std::filesystem::path& file, int64_t layer);

}  // namespace evenkeel::scoring
