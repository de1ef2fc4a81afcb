/// \file  Defines the built-in world: facts that the built-in text states and the built-in tasks ask about. It has
/// animals (with a colour, a home, a food and a size), tools with their purposes, and routines with their steps. It is
/// fixed and depends on no seed, so a model trained on the text knows the answers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel::data::world {

/// Attributes of an animal.
enum Relation : int64_t { kColour, kHome, kFood };
constexpr int64_t kRelationCount = 3;

/// Returns the names of the animals. An `animal` below is an index into this list.
std::span<const std::string_view> animals();
/// Returns the values of a relation: "red", ... (kColour); "forest", ... (kHome); "nuts", ... (kFood).
std::span<const std::string_view> values(int64_t relation);
/// Returns the index of the animal's value of `relation`. Every value occurs equally often.
int64_t value_of(int64_t animal, int64_t relation);
/// Returns the animal's rank by size. Ranks are distinct, and a larger rank is a larger animal.
int64_t size_of(int64_t animal);

/// A tool and the work it is used for.
struct Tool {
  std::string_view name, purpose;  ///< "saw", "cut the wood"
};
std::span<const Tool> tools();

/// A named activity and its steps in order.
struct Routine {
  std::string_view name;  ///< "in the morning"
  std::array<std::string_view, 6> steps;
};
std::span<const Routine> routines();

/// Returns a sentence such as "the fox lives in the forest". \param value  index into values(relation).
std::string statement(int64_t animal, int64_t relation, int64_t value);
/// Returns a question such as "does the fox live in the forest".
std::string yes_no_question(int64_t animal, int64_t relation, int64_t value);
/// Returns a question such as "where does the fox live".
std::string open_question(int64_t animal, int64_t relation);

/// Returns numbered choices: "Answer1: red Answer2: blue". The built-in tasks give choices in a fixed order, so that a
/// question tests knowledge instead of the ability to search a list.
/// \param label  text before each number, "Answer" above \param gap  text between two choices
std::string numbered(std::string_view label, std::span<const std::string_view> choices, std::string_view gap);

/// Returns true for the quarter of the subjects (a, b) that are held out for testing. Training rows never ask about
/// them. \throws kInternal for b >= 1000
/// \param kind  number of the kind of question, chosen by the caller; each kind has its own quarter
/// \param a, b  subject of the question, e.g. animal and relation
bool held_out(uint64_t kind, uint64_t a, uint64_t b);

}  // namespace evenkeel::data::world
