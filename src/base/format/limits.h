/// \file  Upper bounds of the numbers that people give, in one place, and the checks that say them. They keep products,
/// narrowings and float32 arithmetic meaningful; whether a run fits the machine at hand is asked apart, of its whole
/// (models/memory_plan.h). Each is far above anything sensible: a number beyond it is a slip.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace evenkeel::limits {

constexpr int64_t kThreads = 1024;             ///< more than machines have; the pool is made at once
constexpr int64_t kRank = 16'384;              ///< a factor as high as the widest weights is no low rank
constexpr int64_t kClients = 100'000;          ///< each has a list of rows, a file per round and a record
constexpr int64_t kRows = 10'000'000;          ///< 60 times the largest published mixture
constexpr int64_t kFile = int64_t{1} << 32;    ///< bytes of a file of rows, which is read whole
constexpr int64_t kLine = int64_t{1} << 24;    ///< bytes of a row in a line: four million words
constexpr int64_t kBatch = 65'536;             ///< sequences at once; micro-batches per step
constexpr int64_t kTokens = int64_t{1} << 28;  ///< of one sequence: what a config.json may say of positions
constexpr int64_t kSteps = 1'000'000'000;      ///< rounds, optimiser steps, steps between two events
constexpr int64_t kBeams = 1024;               ///< each has a cache of its own
constexpr int64_t kLayers = 100'000;           ///< of a model
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();  ///< of a seed
constexpr double kScale = 1e6;  ///< scales, rates, coefficients: a float32 product with one stays finite

/// \throws kConfig "KEY is VALUE, allowed: LEAST or more, up to MOST" and `place`, where the value stands
void check_integer(std::string_view key, int64_t value, int64_t least, int64_t most, std::string_view place = {});
/// \throws kConfig "KEY is VALUE, allowed: above 0, up to 1e+06", also of what is not finite
void check_above_zero(std::string_view key, double value, std::string_view place = {});
/// \throws kConfig "KEY is VALUE, allowed: 0 or more, up to 1e+06"
void check_from_zero(std::string_view key, double value, std::string_view place = {});
/// \throws kConfig "KEY is VALUE, allowed: greater than 0, at most 1"
void check_share(std::string_view key, double value, std::string_view place = {});

}  // namespace evenkeel::limits
