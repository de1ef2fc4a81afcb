/// \file  Makes rows that ask about facts of a built-in world (data/builtin_world.h) in the LLM-Adapters format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/builtin_world.h"
#include "data/example.h"

namespace evenkeel::data {

/// Returns a row without a label, whose output names the answer.
Row question_row(std::string instruction, std::string answer);

/// Returns "Answer format: answer1/answer2" for the word "answer" and count 2.
std::string format_line(std::string_view word, size_t count);

/// Asks whether a fact is true, as BoolQ.
/// \param off  0: asks about the true value; 1 to false_values(): about a false value
Row fact_row(const world::World& world, const world::Subject& subject, uint64_t off);
/// Returns the number of values of `off` with which fact_row() asks about a false value.
uint64_t false_values(const world::World& world, const world::Subject& subject);

/// Number of choices of value_row().
constexpr int64_t kValueChoices = 4;
/// Asks which of four values belongs to an entity, as ARC and OpenBookQA.
Row value_row(const world::World& world, const world::Subject& subject);
/// Returns the number of the right choice of value_row(), from 0.
int64_t right_choice(const world::World& world, const world::Subject& subject);

}  // namespace evenkeel::data
