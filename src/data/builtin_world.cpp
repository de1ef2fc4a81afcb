#include "data/builtin_world.h"

#include <numeric>

#include "base/plain/error.h"
#include "base/random/random.h"

namespace evenkeel::data::world {
namespace {

constexpr uint64_t kWorldSeed = 1;

constexpr std::array<std::string_view, 24> kAnimals = {
    "ant",  "bear", "bee",  "camel", "cat",  "cow",  "crow", "deer", "dog",  "duck",  "fox",   "frog",
    "goat", "hare", "hawk", "horse", "lion", "mole", "owl",  "seal", "swan", "tiger", "whale", "wolf"};

constexpr std::array<std::string_view, 4> kColours = {"red", "blue", "green", "white"};
constexpr std::array<std::string_view, 4> kHomes = {"forest", "river", "desert", "garden"};
constexpr std::array<std::string_view, 4> kFoods = {"nuts", "fish", "grass", "berries"};

constexpr int64_t kValueCount = kColours.size();

constexpr std::array<Tool, 16> kTools = {
    Tool{"saw", "cut the wood"},      Tool{"broom", "sweep the floor"}, Tool{"needle", "sew the shirt"},
    Tool{"kettle", "boil the water"}, Tool{"hammer", "drive the nail"}, Tool{"spoon", "stir the soup"},
    Tool{"ladder", "reach the roof"}, Tool{"key", "open the door"},     Tool{"rope", "tie the boat"},
    Tool{"lamp", "light the room"},   Tool{"oven", "bake the bread"},   Tool{"pen", "write the letter"},
    Tool{"towel", "dry the plate"},   Tool{"spade", "dig the hole"},    Tool{"basket", "carry the eggs"},
    Tool{"brush", "paint the wall"},
};

constexpr std::array<Routine, 8> kRoutines = {
    Routine{"in the morning", {"wake", "wash", "dress", "eat", "leave", "work"}},
    Routine{"in the kitchen", {"chop", "fry", "season", "taste", "serve", "clean"}},
    Routine{"at the farm", {"plough", "sow", "water", "weed", "reap", "store"}},
    Routine{"on the trip", {"pack", "drive", "park", "climb", "rest", "return"}},
    Routine{"at the school", {"enter", "sit", "listen", "read", "answer", "play"}},
    Routine{"at the shop", {"look", "choose", "weigh", "pay", "carry", "thank"}},
    Routine{"in the studio", {"sketch", "mix", "paint", "dry", "frame", "hang"}},
    Routine{"at the harbour", {"board", "sail", "fish", "count", "land", "sell"}},
};

/// Assigns the values of a relation evenly to the animals, in an order that depends on the relation.
std::array<int64_t, kAnimals.size()> assign_values(uint64_t relation) {
  std::array<int64_t, kAnimals.size()> values;
  const auto order = RandomStream(kWorldSeed, "world-values", relation).permutation(kAnimals.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[static_cast<size_t>(order[i])] = static_cast<int64_t>(i % kValueCount);
  return values;
}

}  // namespace

std::span<const std::string_view> animals() { return kAnimals; }
std::span<const std::string_view> values(int64_t relation) {
  static constexpr std::array<std::span<const std::string_view>, kRelationCount> kValues = {kColours, kHomes, kFoods};
  return kValues[static_cast<size_t>(relation)];
}
std::span<const Tool> tools() { return kTools; }
std::span<const Routine> routines() { return kRoutines; }

int64_t value_of(int64_t animal, int64_t relation) {
  static const std::array table = {assign_values(0), assign_values(1), assign_values(2)};
  return table[static_cast<size_t>(relation)][static_cast<size_t>(animal)];
}

int64_t size_of(int64_t animal) {
  static const auto ranks = RandomStream(kWorldSeed, "world-sizes").permutation(kAnimals.size());
  return ranks[static_cast<size_t>(animal)];
}

std::string statement(int64_t animal, int64_t relation, int64_t value) {
  constexpr std::array<std::string_view, kRelationCount> kVerbs = {" is ", " lives in the ", " eats "};
  return concat("the ", kAnimals[static_cast<size_t>(animal)], kVerbs[static_cast<size_t>(relation)],
                values(relation)[static_cast<size_t>(value)]);
}

std::string yes_no_question(int64_t animal, int64_t relation, int64_t value) {
  constexpr std::array<std::string_view, kRelationCount> kOpenings = {"is the ", "does the ", "does the "};
  constexpr std::array<std::string_view, kRelationCount> kVerbs = {" ", " live in the ", " eat "};
  return concat(kOpenings[static_cast<size_t>(relation)], kAnimals[static_cast<size_t>(animal)],
                kVerbs[static_cast<size_t>(relation)], values(relation)[static_cast<size_t>(value)]);
}

std::string open_question(int64_t animal, int64_t relation) {
  constexpr std::array<std::string_view, kRelationCount> kOpenings = {"what colour is the ", "where does the ",
                                                                      "what does the "};
  constexpr std::array<std::string_view, kRelationCount> kEndings = {"", " live", " eat"};
  return concat(kOpenings[static_cast<size_t>(relation)], kAnimals[static_cast<size_t>(animal)],
                kEndings[static_cast<size_t>(relation)]);
}

std::string numbered(std::string_view label, std::span<const std::string_view> choices, std::string_view gap) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) text += concat(i == 0 ? "" : gap, label, i + 1, ": ", choices[i]);
  return text;
}

bool held_out(uint64_t kind, uint64_t a, uint64_t b) {
  EK_CHECK(b < 1000, kInternal, "a subject (", a, ", ", b,
           ") of the built-in world, allowed: less than 1000 for the second");
  return RandomStream(kWorldSeed, "world-held-out", kind, a * 1000 + b).below(4) == 0;
}

}  // namespace evenkeel::data::world
