/// \file  Provides the tables of BERTScore: the best layer of each encoder by agreement with human judgement, and the
/// baselines for rescaling. Source: the bert_score package 0.3.13.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "scoring/match_score.h"

namespace evenkeel::scoring {

/// Returns the layer whose hidden states bert_score compares: 0 is the embeddings, n the output of the n-th layer.
/// \param name  the encoder's Hugging Face name, with or without the owner ("FacebookAI/roberta-large")
/// \return nullopt if the table lacks the name
std::optional<int64_t> default_layer(std::string_view name);

/// Reads the row of `layer` from a baseline file of the package: a header "LAYER,P,R,F", and one line of four numbers
/// per layer.
/// \throws kData naming file and line for any other content up to the row of `layer`, and when there is no such row;
/// kIo when the file cannot be read or is longer than 1 MiB
MatchScore load_baseline(const std::filesystem::path& file, int64_t layer);

}  // namespace evenkeel::scoring
