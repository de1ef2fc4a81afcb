#include "data/builtin_world.h"

#include <numeric>

#include "base/plain/error.h"
#include "base/random/random.h"

namespace evenkeel::data::world {
namespace {

constexpr uint64_t kWorldSeed = 1;

std::vector<Topic> small_topics() {
  return {
      {.name = "animals",
       .entities = {"ant",  "bear", "bee",  "camel", "cat",  "cow",  "crow", "deer", "dog",  "duck",  "fox",   "frog",
                    "goat", "hare", "hawk", "horse", "lion", "mole", "owl",  "seal", "swan", "tiger", "whale", "wolf"},
       .relations = {
           {"colour", "is", "is the", "", "what colour is the", "", {"red", "blue", "green", "white"}},
           {"home",
            "lives in the",
            "does the",
            "live in the",
            "where does the",
            "live",
            {"forest", "river", "desert", "garden"}},
           {"food", "eats", "does the", "eat", "what does the", "eat", {"nuts", "fish", "grass", "berries"}}}}};
}

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

/// Assigns the values of a relation evenly to the entities, in an order that depends on topic and relation.
std::vector<int64_t> assign_values(const Topic& topic, uint64_t number, uint64_t relation) {
  const auto count = static_cast<int64_t>(topic.entities.size());
  const auto values = static_cast<int64_t>(topic.relations[relation].values.size());
  const auto order = RandomStream(kWorldSeed, "world-values", relation, number).permutation(count);
  std::vector<int64_t> assigned(topic.entities.size());
  for (int64_t i = 0; i < count; ++i) assigned[static_cast<size_t>(order[i])] = i % values;
  return assigned;
}

/// Joins words with spaces. Empty words are left out.
std::string sentence(std::initializer_list<std::string_view> words) {
  std::string text;
  for (const auto word : words)
    if (!word.empty()) text += concat(text.empty() ? "" : " ", word);
  return text;
}

}  // namespace

World::World(std::vector<Topic> topics, int64_t wordings) : topics_(std::move(topics)), wordings_(wordings) {
  for (size_t t = 0; t < topics_.size(); ++t) {
    auto& of_topic = table_.emplace_back();
    for (size_t r = 0; r < topics_[t].relations.size(); ++r) of_topic.push_back(assign_values(topics_[t], t, r));
  }
}

int64_t World::value_of(const Subject& subject) const {
  return table_[static_cast<size_t>(subject.topic)][static_cast<size_t>(subject.relation)]
               [static_cast<size_t>(subject.entity)];
}

std::string World::statement(const Subject& subject, int64_t value, int64_t wording) const {
  const auto& of = relation(subject);
  const std::string_view name = entity(subject), it = of.values[static_cast<size_t>(value)];
  switch (wording) {
    case 1:
      return sentence({"they say that the", name, of.predicate, it});
    case 2:
      return sentence({"look at the", concat(name, ","), "it", of.predicate, it});
    case 3:
      return sentence({"the", of.noun, "of the", concat(name, ":"), it});
    case 4:
      return sentence({it, "is the", of.noun, "of the", name});
    case 5:
      return sentence({"as everyone knows, the", name, of.predicate, it});
    default:
      return sentence({"the", name, of.predicate, it});
  }
}

std::string World::yes_no_question(const Subject& subject, int64_t value) const {
  const auto& of = relation(subject);
  return sentence({of.opening, entity(subject), of.verb, of.values[static_cast<size_t>(value)]});
}

std::string World::open_question(const Subject& subject) const {
  const auto& of = relation(subject);
  return sentence({of.question, entity(subject), of.ending});
}

const World& world_of(WorldSize size) {
  if (size == WorldSize::kLarge) {
    static const World large(large_topics(), 6);
    return large;
  }
  static const World small(small_topics(), 1);
  return small;
}

std::span<const Tool> tools() { return kTools; }
std::span<const Routine> routines() { return kRoutines; }

int64_t size_of(int64_t animal) {
  static const auto ranks = RandomStream(kWorldSeed, "world-sizes").permutation(static_cast<int64_t>(animals().size()));
  return ranks[static_cast<size_t>(animal)];
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
