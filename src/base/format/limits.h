/// \file  Defines upper bounds of numbers in user input, and range checks that throw. The bounds prevent overflow of
/// products, of narrowing conversions and of float32 arithmetic. Each is far above any sensible value. Whether a run
/// fits this machine is checked separately (models/memory_plan.h).
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace evenkeel::limits {

constexpr int64_t kThreads = 1024;             ///< threads; the pool creates all of them at once
constexpr int64_t kRank = 16'384;              ///< LoRA rank; above the width of all known models
constexpr int64_t kClients = 100'000;          ///< clients; each has a list of rows, a file per round and a record
constexpr int64_t kRows = 10'000'000;          ///< rows of a data set; 60 times the largest published data mixture
constexpr int64_t kFile = int64_t{1} << 32;    ///< bytes of a file of rows, which is read as a whole
constexpr int64_t kLine = int64_t{1} << 24;    ///< bytes of one line of a file of rows
constexpr int64_t kInput = int64_t{1} << 30;   ///< bytes of a line of standard input, and of a file of inputs to score
constexpr int64_t kBatch = 65'536;             ///< sequences per batch, and micro-batches per step
constexpr int64_t kTokens = int64_t{1} << 28;  ///< tokens of one sequence: cutoff, sequence length, new tokens
constexpr int64_t kSteps = 1'000'000'000;      ///< rounds, optimiser steps, intervals of log lines and checkpoints
constexpr int64_t kBeams = 1024;               ///< beams of a search; each has its own cache
constexpr int64_t kLayers = 100'000;           ///< layers of a model
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();  ///< no bound, for example for a seed
constexpr double kScale = 1e6;  ///< scales, rates and coefficients; their float32 products stay finite

/// Checks that `value` is in [least, most]. \throws kConfig "KEY is VALUE, allowed: LEAST or more, up to MOST",
/// followed by `place`, the position of the value in its file.
void check_integer(std::string_view key, int64_t value, int64_t least, int64_t most, std::string_view place = {});
/// Checks that `value` is finite, above 0 and at most kScale. \throws kConfig as check_integer().
void check_above_zero(std::string_view key, double value, std::string_view place = {});
/// Checks that `value` is finite, 0 or more and at most kScale. \throws kConfig as check_integer().
void check_from_zero(std::string_view key, double value, std::string_view place = {});
/// Checks that `value` is above 0 and at most 1. \throws kConfig as check_integer().
void check_share(std::string_view key, double value, std::string_view place = {});

}  // namespace evenkeel::limits
