#include "data/builtin_text.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/plain/error.h"
#include "base/random/random.h"
#include "data/builtin_world.h"

namespace evenkeel::data {
namespace {

using world::kRelationCount;

template <typename Range>
const auto& pick(const Range& range, RandomStream& stream) {
  return range[stream.below(std::size(range))];
}

int64_t random_animal(RandomStream& stream) { return static_cast<int64_t>(stream.below(world::animals().size())); }
int64_t random_relation(RandomStream& stream) { return static_cast<int64_t>(stream.below(world::kRelationCount)); }

std::string comparison(int64_t a, int64_t b) {
  return concat("the ", world::animals()[a], world::size_of(a) > world::size_of(b) ? " is bigger" : " is smaller",
                " than the ", world::animals()[b]);
}

std::string animal_story(RandomStream& stream) {
  const int64_t animal = random_animal(stream);
  std::string text;
  for (const int64_t relation : stream.permutation(world::kRelationCount))
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

/// A question, its answer in words, and the choices of a quiz. Choice number `place`, from 0, is right.
struct Question {
  std::string text, answer;
  std::vector<std::string_view> choices;
  size_t place;
};

constexpr size_t kChoices = 4;

std::vector<std::string_view> four_with(std::span<const std::string_view> names, size_t right) {
  const auto four = names.subspan(right / kChoices * kChoices, kChoices);
  return {four.begin(), four.end()};
}

Question two_way(std::string text, bool first, std::string_view yes, std::string_view no) {
  return {std::move(text), std::string(first ? yes : no), {yes, no}, first ? 0u : 1u};
}

Question value_question(RandomStream& stream) {
  const int64_t animal = random_animal(stream), relation = random_relation(stream);
  const auto value = static_cast<size_t>(world::value_of(animal, relation));
  const auto names = world::values(relation);
  return {world::open_question(animal, relation), std::string(names[value]), four_with(names, value), value % kChoices};
}

/// Asks whether a fact is true. Both answers are equally frequent.
Question fact_question(RandomStream& stream) {
  const int64_t animal = random_animal(stream), relation = random_relation(stream);
  const int64_t truth = world::value_of(animal, relation);
  const auto count = static_cast<int64_t>(world::values(relation).size());
  const bool yes = stream.below(2) == 0;
  const int64_t asked = yes ? truth : (truth + 1 + static_cast<int64_t>(stream.below(count - 1))) % count;
  return two_way(world::yes_no_question(animal, relation, asked), yes, "yes", "no");
}

Question tool_question(RandomStream& stream) {
  const size_t tool = stream.below(world::tools().size()), count = world::tools().size();
  const bool helps = stream.below(2) == 0;
  const size_t other = helps ? tool : (tool + 1 + stream.below(count - 1)) % count;
  return two_way(concat("does the ", world::tools()[tool].name, " help to ", world::tools()[other].purpose), helps,
                 "it helps", "it does not help");
}

Question routine_question(RandomStream& stream) {
  std::vector<std::string_view> names;
  for (const auto& routine : world::routines()) names.push_back(routine.name);
  const size_t right = stream.below(names.size());
  return {concat("they ", pick(world::routines()[right].steps, stream)), std::string(names[right]),
          four_with(names, right), right % kChoices};
}

Question size_question(RandomStream& stream) {
  const int64_t a = random_animal(stream);
  const int64_t b = (a + 1 + static_cast<int64_t>(stream.below(world::animals().size() - 1))) %
                    static_cast<int64_t>(world::animals().size());
  return two_way(concat("the ", world::animals()[a], " is _ than the ", world::animals()[b]),
                 world::size_of(a) > world::size_of(b), "bigger", "smaller");
}

Question any_question(RandomStream& stream) {
  constexpr std::array kQuestions = {value_question, fact_question, tool_question, routine_question, size_question};
  constexpr std::array kShares = {0.24, 0.36, 0.16, 0.10, 0.14};
  return kQuestions[static_cast<size_t>(stream.choose(kShares))](stream);
}

/// Returns a sentence of office language, with the everyday words of instructions.
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

/// Returns questions with the answer in words directly after each.
std::string quiz(RandomStream& stream) {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    const auto question = any_question(stream);
    text += concat(question.text, "? ", question.answer, "\n");
  }
  return text;
}

/// Returns questions that are answered by the number of the choice, without repeating the choice.
std::string quick_quiz(RandomStream& stream) {
  std::string text = "By number.\n";
  for (int i = 0; i < 8; ++i) {
    const auto question = any_question(stream);
    text += concat(question.text, "? ", question.place + 1, "\n");
  }
  return text;
}

std::string office_talk(RandomStream& stream) {
  std::string text;
  for (auto sentences = stream.below(3); sentences > 0; --sentences) text += office_sentence(stream) + "\n\n";
  return text;
}

/// Returns questions that are answered after other sentences, so that the question has to be found further back.
std::string interview(RandomStream& stream) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    const auto question = any_question(stream);
    text += concat(question.text, "?\n\n", office_talk(stream), "the answer is ", question.answer, "\n\n");
  }
  return text;
}

/// Returns questions with numbered choices, answered by number. The labels differ from those of the tasks, so that
/// fine-tuning has to teach the tasks' labels.
std::string numbered_quiz(RandomStream& stream) {
  constexpr std::array<std::string_view, 4> kLabels = {"Choice", "Item", "Case", "Line"};
  constexpr std::array<std::string_view, 4> kNames = {"choice", "item", "case", "line"};
  constexpr std::array<std::string_view, 2> kGaps = {" ", "\n\n"};
  std::string text;
  for (int i = 0; i < 3; ++i) {
    const auto question = any_question(stream);
    const size_t label = stream.below(kLabels.size());
    text += concat(question.text, "?\n\n", world::numbered(kLabels[label], question.choices, pick(kGaps, stream)),
                   "\n\n", office_talk(stream), "the answer is ", kNames[label], question.place + 1, "\n\n");
  }
  return text;
}

std::string document(RandomStream& stream) {
  constexpr std::array kKinds = {quiz, quick_quiz, interview, numbered_quiz, animal_story, tool_story, routine_story};
  constexpr std::array kShares = {0.28, 0.30, 0.14, 0.20, 0.04, 0.02, 0.02};
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

}  // namespace evenkeel::data
