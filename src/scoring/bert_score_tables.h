/// \file  What BERTScore takes from tables: the layer that agrees best with human judgement for each encoder, and the
/// baselines of rescaling. Source: the bert_score package 0.3.13, which measured both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "scoring/match_score.h"

namespace evenkeel {

/// Layer of an encoder by its name on the hub, with or without the owner ("FacebookAI/roberta-large"); nothing for
/// names the table lacks.
std::optional<int64_t> default_layer(std::string_view name);

/// The row of `layer` in a baseline file of the package: a header "LAYER,P,R,F" and a line of four numbers per layer.
/// \throws kData naming file and line.
MatchScore load_baseline(const std::filesystem::path& file, int64_t layer);

}  // namespace evenkeel
