/// \file  Defines the built-in worlds: facts that the built-in text states and built-in tasks ask about. A world has
/// topics, a topic has entities, and every entity has one value of each relation of its topic. The small world has one
/// topic, animals (with a colour, a home, a food and a size), and also tools with purposes and routines with their
/// steps. The large world has 4 topics of 120 entities and 6 relations, and states a fact in six wordings. Both are
/// fixed and depend on no seed, so a model trained on the text knows the answers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel::data::world {

/// An attribute of the entities of a topic, and the words of sentences about it.
struct Relation {
  std::string_view noun;                 ///< "home"
  std::string_view predicate;            ///< "lives in the", as in "the fox lives in the forest"
  std::string_view opening, verb;        ///< "does the", "live in the", as in "does the fox live in the forest"
  std::string_view question, ending;     ///< "where does the", "live", as in "where does the fox live"
  std::vector<std::string_view> values;  ///< "forest", ...; a multiple of four
};

struct Topic {
  std::string_view name;
  std::vector<std::string> entities;
  std::vector<Relation> relations;
};

/// What a fact is about: a relation of an entity. All are indices: into topics(), and into the lists of the topic.
struct Subject {
  int64_t topic = 0, entity = 0, relation = 0;
};

enum class WorldSize { kSmall, kLarge };
constexpr auto names(WorldSize) {
  return std::array{config::EnumName<WorldSize>{"small", WorldSize::kSmall},
                    config::EnumName<WorldSize>{"large", WorldSize::kLarge}};
}

/// The topics of a world, and the value that each entity has of each relation. Every value of a relation occurs equally
/// often. Threads: any number may read.
class World {
 public:
  /// \param wordings  number of wordings of a statement, 1 to 6
  World(std::vector<Topic> topics, int64_t wordings);

  const std::vector<Topic>& topics() const { return topics_; }
  int64_t wordings() const { return wordings_; }
  const Topic& topic(const Subject& subject) const { return topics_[static_cast<size_t>(subject.topic)]; }
  const std::string& entity(const Subject& subject) const {
    return topic(subject).entities[static_cast<size_t>(subject.entity)];
  }
  const Relation& relation(const Subject& subject) const {
    return topic(subject).relations[static_cast<size_t>(subject.relation)];
  }
  std::span<const std::string_view> values(const Subject& subject) const { return relation(subject).values; }
  /// Returns the index of the true value in values(subject).
  int64_t value_of(const Subject& subject) const;

  /// Returns a sentence such as "the fox lives in the forest".
  /// \param value    index into values(subject)
  /// \param wording  0 .. wordings() - 1
  std::string statement(const Subject& subject, int64_t value, int64_t wording = 0) const;
  /// Returns a question such as "does the fox live in the forest".
  std::string yes_no_question(const Subject& subject, int64_t value) const;
  /// Returns a question such as "where does the fox live".
  std::string open_question(const Subject& subject) const;

 private:
  std::vector<Topic> topics_;
  int64_t wordings_;
  std::vector<std::vector<std::vector<int64_t>>> table_;  // [topic][relation][entity] index of the value
};

/// Returns the world of a size. It is made at the first call.
const World& world_of(WorldSize size);
inline const World& small_world() { return world_of(WorldSize::kSmall); }
inline const World& large_world() { return world_of(WorldSize::kLarge); }
/// Returns the topics of the large world.
std::vector<Topic> large_topics();

/// Returns the names of the animals of the small world. They are the entities of its only topic.
inline std::span<const std::string> animals() { return small_world().topics()[0].entities; }

/// Returns the rank of an animal of the small world by size. Ranks are distinct; a larger rank is a larger animal.
/// \param animal  index into animals()
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

/// Returns numbered choices: "Answer1: red Answer2: blue". The built-in tasks give choices in a fixed order, so that a
/// question tests knowledge instead of the ability to search a list.
/// \param label  text before each number, "Answer" above \param gap  text between two choices
std::string numbered(std::string_view label, std::span<const std::string_view> choices, std::string_view gap);

/// Returns true for the quarter of the small world's subjects (a, b) that are held out for testing. Training rows never
/// ask about them. \throws kInternal for b >= 1000
/// \param kind  number of the kind of question, chosen by the caller; each kind has its own quarter
/// \param a, b  subject of the question, e.g. animal and relation
bool held_out(uint64_t kind, uint64_t a, uint64_t b);

}  // namespace evenkeel::data::world
