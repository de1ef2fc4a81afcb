#include "data/builtin_text.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/plain/error.h"
#include "base/random/random.h"
#include "data/builtin_world.h"

namespace evenkeel::data {
namespace {

using world::Subject;
using world::World;

template <typename Range>
const auto& pick(const Range& range, RandomStream& stream) {
  return range[stream.below(std::size(range))];
}

/// Draws an index below `count`. A choice of one draws no number, so that it leaves the stream as it is.
template <typename Count>
int64_t any_of(Count count, RandomStream& stream) {
  return count > 1 ? static_cast<int64_t>(stream.below(static_cast<uint64_t>(count))) : 0;
}

/// Returns true for the world that has tools, routines and sizes too.
bool is_small(const World& world) { return &world == &world::small_world(); }

/// Draws an index below `count`, index i with a probability of about 1 / (2 sqrt((i + 1) count)).
int64_t first_ones_more_often(size_t count, RandomStream& stream) {
  const double place = stream.uniform();
  return static_cast<int64_t>(place * place * static_cast<double>(count));
}

/// Draws a topic and one of its entities. The large world has so many that a model learns the facts of those that are
/// often named first, and then the others: it needs fewer tokens than if all were named alike (Zucchet et al. 2025,
/// "How do language models learn facts?").
Subject random_entity(RandomStream& stream, const World& world) {
  Subject subject{.topic = any_of(world.topics().size(), stream)};
  const size_t count = world.topic(subject).entities.size();
  subject.entity = is_small(world) ? any_of(count, stream) : first_ones_more_often(count, stream);
  return subject;
}

/// Draws a topic, one of its entities and one of its relations.
Subject random_subject(RandomStream& stream, const World& world) {
  auto subject = random_entity(stream, world);
  subject.relation = any_of(world.topic(subject).relations.size(), stream);
  return subject;
}

std::string comparison(int64_t a, int64_t b) {
  return concat("the ", world::animals()[a], world::size_of(a) > world::size_of(b) ? " is bigger" : " is smaller",
                " than the ", world::animals()[b]);
}

/// Returns all facts about one entity, each in a wording of its own.
std::string entity_story(Subject subject, RandomStream& stream, const World& world) {
  std::string text;
  for (const int64_t relation : stream.permutation(static_cast<int64_t>(world.topic(subject).relations.size()))) {
    subject.relation = relation;
    text += world.statement(subject, world.value_of(subject), any_of(world.wordings(), stream)) + ". ";
  }
  return text;
}

std::string any_entity_story(RandomStream& stream, const World& world) {
  return entity_story(random_entity(stream, world), stream, world);
}

std::string animal_story(RandomStream& stream, const World& world) {
  const auto animal = random_entity(stream, world);
  auto text = entity_story(animal, stream, world);
  for (int i = 0; i < 2; ++i)
    if (const auto other = random_entity(stream, world).entity; other != animal.entity)
      text += comparison(animal.entity, other) + ". ";
  return text;
}

std::string tool_story(RandomStream& stream, const World&) {
  std::string text;
  for (int i = 0; i < 4; ++i) {
    const auto& tool = pick(world::tools(), stream);
    text += concat("use the ", tool.name, " to ", tool.purpose, ". ");
  }
  return text;
}

std::string routine_story(RandomStream& stream, const World&) {
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

Question value_question(RandomStream& stream, const World& world) {
  const auto subject = random_subject(stream, world);
  const auto value = static_cast<size_t>(world.value_of(subject));
  const auto names = world.values(subject);
  return {world.open_question(subject), std::string(names[value]), four_with(names, value), value % kChoices};
}

/// Asks whether a fact is true. Both answers are equally frequent.
Question fact_question(RandomStream& stream, const World& world) {
  const auto subject = random_subject(stream, world);
  const int64_t truth = world.value_of(subject), count = static_cast<int64_t>(world.values(subject).size());
  const bool yes = stream.below(2) == 0;
  const int64_t asked = yes ? truth : (truth + 1 + static_cast<int64_t>(stream.below(count - 1))) % count;
  return two_way(world.yes_no_question(subject, asked), yes, "yes", "no");
}

Question tool_question(RandomStream& stream, const World&) {
  const size_t tool = stream.below(world::tools().size()), count = world::tools().size();
  const bool helps = stream.below(2) == 0;
  const size_t other = helps ? tool : (tool + 1 + stream.below(count - 1)) % count;
  return two_way(concat("does the ", world::tools()[tool].name, " help to ", world::tools()[other].purpose), helps,
                 "it helps", "it does not help");
}

Question routine_question(RandomStream& stream, const World&) {
  std::vector<std::string_view> names;
  for (const auto& routine : world::routines()) names.push_back(routine.name);
  const size_t right = stream.below(names.size());
  return {concat("they ", pick(world::routines()[right].steps, stream)), std::string(names[right]),
          four_with(names, right), right % kChoices};
}

Question size_question(RandomStream& stream, const World& world) {
  const int64_t a = random_entity(stream, world).entity, count = static_cast<int64_t>(world::animals().size());
  const int64_t b = (a + 1 + static_cast<int64_t>(stream.below(static_cast<uint64_t>(count - 1)))) % count;
  return two_way(concat("the ", world::animals()[a], " is _ than the ", world::animals()[b]),
                 world::size_of(a) > world::size_of(b), "bigger", "smaller");
}

Question any_question(RandomStream& stream, const World& world) {
  constexpr std::array kQuestions = {value_question, fact_question, tool_question, routine_question, size_question};
  constexpr std::array kShares = {0.24, 0.36, 0.16, 0.10, 0.14}, kFactsOnly = {0.5, 0.5, 0.0, 0.0, 0.0};
  return kQuestions[static_cast<size_t>(stream.choose(is_small(world) ? kShares : kFactsOnly))](stream, world);
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
std::string quiz(RandomStream& stream, const World& world) {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    const auto question = any_question(stream, world);
    text += concat(question.text, "? ", question.answer, "\n");
  }
  return text;
}

/// Returns questions that are answered by the number of the choice, without repeating the choice.
std::string quick_quiz(RandomStream& stream, const World& world) {
  std::string text = "By number.\n";
  for (int i = 0; i < 8; ++i) {
    const auto question = any_question(stream, world);
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
std::string interview(RandomStream& stream, const World& world) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    const auto question = any_question(stream, world);
    text += concat(question.text, "?\n\n", office_talk(stream), "the answer is ", question.answer, "\n\n");
  }
  return text;
}

/// Returns questions with numbered choices, answered by number. The labels differ from those of the tasks, so that
/// fine-tuning has to teach the tasks' labels.
std::string numbered_quiz(RandomStream& stream, const World& world) {
  constexpr std::array<std::string_view, 4> kLabels = {"Choice", "Item", "Case", "Line"};
  constexpr std::array<std::string_view, 4> kNames = {"choice", "item", "case", "line"};
  constexpr std::array<std::string_view, 2> kGaps = {" ", "\n\n"};
  std::string text;
  for (int i = 0; i < 3; ++i) {
    const auto question = any_question(stream, world);
    const size_t label = stream.below(kLabels.size());
    const auto talk = office_talk(stream);  // the draws in an order of their own: that of arguments is the compiler's
    const auto choices = world::numbered(kLabels[label], question.choices, pick(kGaps, stream));
    text += concat(question.text, "?\n\n", choices, "\n\n", talk, "the answer is ", kNames[label], question.place + 1,
                   "\n\n");
  }
  return text;
}

std::string document(RandomStream& stream, const World& world) {
  constexpr std::array kKinds = {quiz,         quick_quiz, interview,     numbered_quiz,
                                 animal_story, tool_story, routine_story, any_entity_story};
  constexpr std::array kShares = {0.28, 0.30, 0.14, 0.20, 0.04, 0.02, 0.02, 0.0};
  constexpr std::array kFactsOnly = {0.20, 0.20, 0.10, 0.15, 0.0, 0.0, 0.0, 0.35};
  return kKinds[static_cast<size_t>(stream.choose(is_small(world) ? kShares : kFactsOnly))](stream, world);
}

}  // namespace

std::vector<std::string> builtin_documents(int64_t count, uint64_t seed, world::WorldSize size) {
  const auto& world = world::world_of(size);
  std::vector<std::string> documents;
  documents.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    RandomStream stream(seed, "builtin-document", static_cast<uint64_t>(i));
    documents.push_back(document(stream, world));
  }
  return documents;
}

}  // namespace evenkeel::data
