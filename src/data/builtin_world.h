/// \file  The small world that the built-in text tells of and the built-in tasks ask about: animals with a colour, a
/// home and a food, ordered by size; tools and what they are for; routines, whose steps follow one another. Fixed: it
/// does not depend on any seed, so that a model trained on the text knows what the tasks ask.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel::world {

/// What is told of every animal.
enum Relation : int64_t { kColour, kHome, kFood };
constexpr int64_t kRelationCount = 3;

std::span<const std::string_view> animals();
/// "red", ...; "forest", ...; "nuts", ...
std::span<const std::string_view> values(int64_t relation);
/// Index of the value of `relation` that is true of `animal`. Every value is true of equally many animals.
int64_t value_of(int64_t animal, int64_t relation);
/// Rank by size, all different: larger is bigger.
int64_t size_of(int64_t animal);

struct Tool {
  std::string_view name, purpose;  ///< "saw", "cut the wood"
};
std::span<const Tool> tools();

/// Activities in their order.
struct Routine {
  std::string_view name;  ///< "in the morning"
  std::array<std::string_view, 6> steps;
};
std::span<const Routine> routines();

/// "the fox lives in the forest" / "does the fox live in the forest" / "where does the fox live".
std::string statement(int64_t animal, int64_t relation, int64_t value);
std::string yes_no_question(int64_t animal, int64_t relation, int64_t value);
std::string open_question(int64_t animal, int64_t relation);

/// Choices under numbered labels: "Answer1: red Answer2: blue". They stand in a fixed order, so that a question asks
/// for knowledge and for the name of a choice, not for a search in a list.
/// \param gap  what stands between two choices.
std::string numbered(std::string_view label, std::span<const std::string_view> choices, std::string_view gap);

/// True for the quarter of things that training rows never ask about. \param a, b, kind  which thing, any numbers.
bool held_out(uint64_t kind, uint64_t a, uint64_t b);

}  // namespace evenkeel::world
