#include "data/builtin_text.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/random.h"
#include "data/builtin_world.h"

namespace evenkeel {
namespace {

using world::kRelationCount;

template <typename Range>
const auto& pick(const Range& range, RandomStream& stream) {
  return range[stream.below(std::size(range))];
}

int64_t random_animal(RandomStream& stream) { return static_cast<int64_t>(stream.below(world::animals().size())); }
int64_t random_relation(RandomStream& stream) { return static_cast<int64_t>(stream.below(kRelationCount)); }

std::string comparison(int64_t a, int64_t b) {
  return concat("the ", world::animals()[a], world::size_of(a) > world::size_of(b) ? " is bigger" : " is smaller",
                " than the ", world::animals()[b]);
}

std::string animal_story(RandomStream& stream) {
  const int64_t animal = random_animal(stream);
  std::string text;
  for (const int64_t relation : stream.permutation(kRelationCount))
    text += world::statement(animal, relation, world::value_of(animal, relation)) + ". ";
  for (int i = 0; i < 2; ++i)
    if (const int64_t other = random_animal(stream); other != animal) text += comparison(animal, other) + ". ";
  return text;
}

std::string tool_story(RandomStream& stream) {
  std::string text;
  for (int i = 0; i < 4; ++i) {
    const auto& tool = pick(world::tools(), stream);
    text += concat("use the ", tool.name, " to ", tool.purpose, ". ");
  }
  return text;
}

std::string routine_story(RandomStream& stream) {
  const auto& routine = pick(world::routines(), stream);
  return concat(routine.name, " they ", join(routine.steps, ", then "), ". ");
}

struct Question {
  std::string text, answer;
};

Question value_question(RandomStream& stream) {
  const int64_t animal = random_animal(stream), relation = random_relation(stream);
  return {world::open_question(animal, relation),
          std::string(world::values(relation)[world::value_of(animal, relation)])};
}

/// Asks whether a fact is true; as often it is as it is not.
Question fact_question(RandomStream& stream) {
  const int64_t animal = random_animal(stream), relation = random_relation(stream);
  const int64_t truth = world::value_of(animal, relation);
  const auto count = static_cast<int64_t>(world::values(relation).size());
  const bool yes = stream.below(2) == 0;
  const int64_t asked = yes ? truth : (truth + 1 + static_cast<int64_t>(stream.below(count - 1))) % count;
  return {world::yes_no_question(animal, relation, asked), yes ? "yes" : "no"};
}

Question tool_question(RandomStream& stream) {
  const size_t tool = stream.below(world::tools().size()), count = world::tools().size();
  const bool yes = stream.below(2) == 0;
  const size_t other = yes ? tool : (tool + 1 + stream.below(count - 1)) % count;
  return {concat("does the ", world::tools()[tool].name, " help to ", world::tools()[other].purpose),
          yes ? "yes" : "no"};
}

Question routine_question(RandomStream& stream) {
  const auto& routine = pick(world::routines(), stream);
  return {concat("when do they ", pick(routine.steps, stream)), std::string(routine.name)};
}

Question size_question(RandomStream& stream) {
  const int64_t a = random_animal(stream);
  const int64_t b = (a + 1 + static_cast<int64_t>(stream.below(world::animals().size() - 1))) %
                    static_cast<int64_t>(world::animals().size());
  return {concat("is the ", world::animals()[a], " bigger or smaller than the ", world::animals()[b]),
          world::size_of(a) > world::size_of(b) ? "bigger" : "smaller"};
}

Question any_question(RandomStream& stream) {
  constexpr std::array kQuestions = {value_question, fact_question, tool_question, routine_question, size_question};
  constexpr std::array kShares = {0.32, 0.34, 0.12, 0.10, 0.12};
  return kQuestions[static_cast<size_t>(stream.choose(kShares))](stream);
}

/// Office talk: the everyday words that instructions are made of.
std::string office_sentence(RandomStream& stream) {
  constexpr std::array<std::string_view, 10> kSentences = {
      "The note below describes a task for the day.",
      "Please write a response and choose the correct format.",
      "An instruction came with the request, and the answer completes it appropriately.",
      "The statement was true, the other one was false.",
      "Below that stands the following question: the given sentence has a blank to fill in.",
      "A good solution, a good ending and a good option were named.",
      "Solution, Ending, Option and Answer are words that stand before a colon.",
      "Response and instruction belong together, as question and answer do.",
      "Lists are numbered: Solution1, Solution2, Ending3, Answer4, Option1.",
      "Please answer the following request with a sentence that completes the task."};
  return std::string(pick(kSentences, stream));
}

/// Questions with the answer right behind.
std::string quiz(RandomStream& stream) {
  std::string text;
  for (int i = 0; i < 6; ++i) {
    const auto question = any_question(stream);
    text += concat(question.text, "? ", question.answer, "\n");
  }
  return text;
}

/// Questions whose answer comes after other talk, so that it has to be looked up further back.
std::string interview(RandomStream& stream) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    const auto question = any_question(stream);
    text += concat(question.text, "?\n\n");
    for (auto sentences = stream.below(3); sentences > 0; --sentences) text += office_sentence(stream) + "\n\n";
    text += concat("the answer is ", question.answer, "\n\n");
  }
  return text;
}

std::string document(RandomStream& stream) {
  constexpr std::array kKinds = {quiz, interview, animal_story, tool_story, routine_story};
  constexpr std::array kShares = {0.50, 0.34, 0.08, 0.04, 0.04};
  return kKinds[static_cast<size_t>(stream.choose(kShares))](stream);
}

}  // namespace

std::vector<std::string> builtin_documents(int64_t count, uint64_t seed) {
  std::vector<std::string> documents;
  documents.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    RandomStream stream(seed, "builtin-document", static_cast<uint64_t>(i));
    documents.push_back(document(stream));
  }
  return documents;
}

}  // namespace evenkeel
