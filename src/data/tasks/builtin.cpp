// The built-in tasks: questions about the world of data/builtin_world.h in the LLM-Adapters format, with the answer
// words of the eight commonsense sets. A quarter of the things asked about is kept for testing: training rows never ask
// about them.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/random.h"
#include "data/builtin_world.h"
#include "data/tasks/family.h"

namespace evenkeel {
namespace {

constexpr int64_t kTestRows = 200;
constexpr int64_t kTrainingRows = 2400;

enum Kind : uint64_t { kFacts, kValues, kTools, kRoutines, kSizes, kKindCount };

Row make_row(std::string instruction, std::string answer) {
  return {.instruction = std::move(instruction),
          .input = "",
          .output = concat("the correct answer is ", answer),
          .answer = std::move(answer),
          .label = ""};
}

/// Draws until the thing asked about is on the wanted side of the held-out split.
template <typename Draw>
auto draw_from(bool testing, const Draw& draw) {
  for (;;)
    if (auto thing = draw(); world::held_out(thing.kind, thing.a, thing.b) == testing) return thing;
}

struct Thing {
  uint64_t kind, a, b;
};

/// "Answer format: answer1/answer2".
std::string format_line(std::string_view word, size_t count) {
  std::string text = "Answer format: ";
  for (size_t i = 0; i < count; ++i) text += concat(i == 0 ? "" : "/", word, i + 1);
  return text;
}

Thing draw_animal(uint64_t kind, RandomStream& stream) {
  return {kind, stream.below(world::animals().size()), stream.below(world::kRelationCount)};
}

/// As BoolQ: is a fact true?
Row fact_row(bool testing, RandomStream& stream) {
  const auto thing = draw_from(testing, [&] { return draw_animal(kFacts, stream); });
  const auto animal = static_cast<int64_t>(thing.a), relation = static_cast<int64_t>(thing.b);
  const auto count = static_cast<int64_t>(world::values(relation).size());
  const bool is_true = stream.below(2) == 0;
  const int64_t truth = world::value_of(animal, relation);
  const int64_t asked = is_true ? truth : (truth + 1 + static_cast<int64_t>(stream.below(count - 1))) % count;
  return make_row(concat("Please answer the following question with true or false, question: ",
                         world::yes_no_question(animal, relation, asked), "?\n\nAnswer format: true/false"),
                  is_true ? "true" : "false");
}

/// As ARC and OpenBookQA: which of four values belongs to an animal?
Row value_row(bool testing, RandomStream& stream) {
  constexpr int64_t kChoices = 4;
  const auto place = static_cast<int64_t>(stream.below(kChoices));  // drawn first: all answers are equally frequent
  const auto thing = draw_from(testing, [&] {
    for (;;)
      if (const auto fact = draw_animal(kFacts, stream);
          world::value_of(static_cast<int64_t>(fact.a), static_cast<int64_t>(fact.b)) % kChoices == place)
        return fact;
  });
  const auto animal = static_cast<int64_t>(thing.a), relation = static_cast<int64_t>(thing.b);
  const int64_t truth = world::value_of(animal, relation), first = truth / kChoices * kChoices;
  return make_row(concat("Please choose the correct answer to the question: ", world::open_question(animal, relation),
                         "?\n\n", world::numbered("Answer", world::values(relation).subspan(first, kChoices), " "),
                         "\n\n", format_line("answer", kChoices)),
                  concat("answer", place + 1));
}

/// As PIQA: does a tool do it?
Row tool_row(bool testing, RandomStream& stream) {
  const auto tools = world::tools();
  const auto thing = draw_from(testing, [&] { return Thing{kTools, stream.below(tools.size()), 0}; });
  const bool helps = stream.below(2) == 0;
  const auto tool = helps ? thing.a : (thing.a + 1 + stream.below(tools.size() - 1)) % tools.size();
  constexpr std::array<std::string_view, 2> kChoices = {"it helps", "it does not help"};
  return make_row(concat("Please choose the correct solution to the question: does the ", tools[tool].name, " help to ",
                         tools[thing.a].purpose, "?\n\n", world::numbered("Solution", kChoices, "\n\n"), "\n\n",
                         format_line("solution", kChoices.size())),
                  helps ? "solution1" : "solution2");
}

/// As HellaSwag: where does an activity belong, of four routines?
Row routine_row(bool testing, RandomStream& stream) {
  constexpr size_t kChoices = 4;
  const auto routines = world::routines();
  const uint64_t place = stream.below(kChoices);  // drawn first: all answers are equally frequent
  const auto thing = draw_from(testing, [&] {
    const uint64_t routine = place + kChoices * stream.below(routines.size() / kChoices);
    return Thing{kRoutines, routine, stream.below(routines[routine].steps.size())};
  });
  const size_t first = thing.a / kChoices * kChoices;
  std::vector<std::string_view> choices;
  for (size_t i = 0; i < kChoices; ++i) choices.push_back(routines[first + i].name);
  return make_row(
      concat("Please choose the correct ending to complete the given sentence: they ", routines[thing.a].steps[thing.b],
             "\n\n", world::numbered("Ending", choices, " "), "\n\n", format_line("ending", kChoices)),
      concat("ending", place + 1));
}

/// As WinoGrande: which word fills the blank?
Row size_row(bool testing, RandomStream& stream) {
  const auto animals = world::animals();
  const auto pair = draw_from(testing, [&] {
    const uint64_t a = stream.below(animals.size());
    const uint64_t b = (a + 1 + stream.below(animals.size() - 1)) % animals.size();
    return Thing{kSizes, std::min(a, b), std::max(a, b)};
  });
  const bool turned = stream.below(2) == 0;
  const uint64_t a = turned ? pair.b : pair.a, b = turned ? pair.a : pair.b;
  const bool bigger = world::size_of(static_cast<int64_t>(a)) > world::size_of(static_cast<int64_t>(b));
  constexpr std::array<std::string_view, 2> kChoices = {"bigger", "smaller"};
  return make_row(concat("Please choose the correct answer to fill in the blank to complete the given sentence: the ",
                         animals[a], " is _ than the ", animals[b], "\n\n", world::numbered("Option", kChoices, " "),
                         " ", format_line("option", kChoices.size())),
                  bigger ? "option1" : "option2");
}

struct Entry {
  TaskInfo info;
  Row (*make)(bool testing, RandomStream& stream);
};

const std::array<Entry, kKindCount>& entries() {
  static const std::array<Entry, kKindCount> table = {{
      {{"builtin:facts", "builtin", "", {"true", "false"}, "is a fact of the built-in world true? (as BoolQ)"},
       fact_row},
      {{"builtin:values",
        "builtin",
        "",
        {"answer1", "answer2", "answer3", "answer4", "answer5"},
        "which of 4 values belongs to an animal? (as ARC, OpenBookQA)"},
       value_row},
      {{"builtin:tools", "builtin", "", {"solution1", "solution2"}, "does a tool do it? (as PIQA)"}, tool_row},
      {{"builtin:routines",
        "builtin",
        "",
        {"ending1", "ending2", "ending3", "ending4"},
        "which of 4 routines has an activity? (as HellaSwag)"},
       routine_row},
      {{"builtin:sizes", "builtin", "", {"option1", "option2"}, "bigger or smaller? (as WinoGrande)"}, size_row},
  }};
  return table;
}

}  // namespace

std::span<const TaskInfo> builtin_tasks() {
  static const std::vector<TaskInfo> table = [] {
    std::vector<TaskInfo> infos;
    for (const auto& entry : entries()) infos.push_back(entry.info);
    return infos;
  }();
  return table;
}

std::vector<Row> builtin_test_rows(const TaskInfo& task, int64_t count, uint64_t seed) {
  std::vector<Row> rows;
  for (size_t kind = 0; kind < entries().size(); ++kind) {
    if (entries()[kind].info.name != task.name) continue;
    for (int64_t i = 0; i < (count > 0 ? count : kTestRows); ++i) {
      RandomStream stream(seed, concat("builtin-test-", kind), static_cast<uint64_t>(i));
      rows.push_back(entries()[kind].make(/*testing=*/true, stream));
      rows.back().label = task.name;
    }
  }
  return rows;
}

std::vector<Row> builtin_training_rows(int64_t count, uint64_t seed) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < (count > 0 ? count : kTrainingRows); ++i) {
    RandomStream stream(seed, "builtin-train", static_cast<uint64_t>(i));
    const auto& entry = entries()[stream.below(entries().size())];
    rows.push_back(entry.make(/*testing=*/false, stream));
    rows.back().label = entry.info.name;
  }
  return rows;
}

}  // namespace evenkeel
