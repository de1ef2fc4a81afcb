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

/// The right choice among wrong ones, in a random place. \return the place.
size_t insert_right(std::vector<std::string>& choices, std::string right, RandomStream& stream) {
  const auto place = static_cast<size_t>(stream.below(choices.size() + 1));
  choices.insert(choices.begin() + place, std::move(right));
  return place;
}

/// "Answer1: x Answer2: y" and "answer1/answer2".
std::string listed(std::string_view label, const std::vector<std::string>& choices, std::string_view gap) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) text += concat(i == 0 ? "" : gap, label, i + 1, ": ", choices[i]);
  return text;
}

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

/// As ARC and Social IQa: which value, of three or four?
Row value_row(bool testing, RandomStream& stream) {
  const auto thing = draw_from(testing, [&] { return draw_animal(kFacts, stream); });
  const auto animal = static_cast<int64_t>(thing.a), relation = static_cast<int64_t>(thing.b);
  const auto values = world::values(relation);
  const int64_t truth = world::value_of(animal, relation);
  std::vector<std::string> choices;
  const size_t wrong = 2 + stream.below(2);
  for (const int64_t value : stream.permutation(static_cast<int64_t>(values.size())))
    if (value != truth && choices.size() < wrong) choices.emplace_back(values[value]);
  const auto place = insert_right(choices, std::string(values[truth]), stream);
  return make_row(concat("Please choose the correct answer to the question: ", world::open_question(animal, relation),
                         "?\n\n", listed("Answer", choices, " "), "\n\n", format_line("answer", choices.size())),
                  concat("answer", place + 1));
}

/// As PIQA: which of two tools?
Row tool_row(bool testing, RandomStream& stream) {
  const auto tools = world::tools();
  const auto thing = draw_from(testing, [&] { return Thing{kTools, stream.below(tools.size()), 0}; });
  const auto other = (thing.a + 1 + stream.below(tools.size() - 1)) % tools.size();
  std::vector<std::string> choices = {concat("use the ", tools[other].name)};
  const auto place = insert_right(choices, concat("use the ", tools[thing.a].name), stream);
  return make_row(concat("Please choose the correct solution to the question: how to ", tools[thing.a].purpose, "?\n\n",
                         listed("Solution", choices, "\n\n"), "\n\n", format_line("solution", choices.size())),
                  concat("solution", place + 1));
}

/// As HellaSwag: what comes next, of four?
Row routine_row(bool testing, RandomStream& stream) {
  const auto routines = world::routines();
  const auto thing = draw_from(testing, [&] {
    const uint64_t routine = stream.below(routines.size());
    return Thing{kRoutines, routine, 1 + stream.below(routines[routine].steps.size() - 1)};
  });
  const auto& steps = routines[thing.a].steps;
  std::vector<std::string> choices;
  while (choices.size() < 3) {
    const auto& other = routines[stream.below(routines.size())].steps;
    const std::string step(other[stream.below(other.size())]);
    if (step != steps[thing.b] && std::find(choices.begin(), choices.end(), step) == choices.end())
      choices.push_back(step);
  }
  const auto place = insert_right(choices, std::string(steps[thing.b]), stream);
  return make_row(concat("Please choose the correct ending to complete the given sentence: ", routines[thing.a].name,
                         " they ", steps[thing.b - 1], ", then\n\n", listed("Ending", choices, " "), "\n\n",
                         format_line("ending", choices.size())),
                  concat("ending", place + 1));
}

/// As WinoGrande: which of two fills the blank?
Row size_row(bool testing, RandomStream& stream) {
  const auto animals = world::animals();
  const auto thing = draw_from(testing, [&] {
    const uint64_t a = stream.below(animals.size());
    const uint64_t b = (a + 1 + stream.below(animals.size() - 1)) % animals.size();
    return Thing{kSizes, std::min(a, b), std::max(a, b)};
  });
  const bool asks_bigger = stream.below(2) == 0;
  const bool first_bigger =
      world::size_of(static_cast<int64_t>(thing.a)) > world::size_of(static_cast<int64_t>(thing.b));
  const bool first_right = first_bigger == asks_bigger;
  std::vector<std::string> choices = {std::string(animals[first_right ? thing.b : thing.a])};
  const auto place = insert_right(choices, std::string(animals[first_right ? thing.a : thing.b]), stream);
  return make_row(
      concat("Please choose the correct answer to fill in the blank to complete the given sentence: the _ is the ",
             asks_bigger ? "bigger" : "smaller", " one\n\n", listed("Option", choices, " "), " ",
             format_line("option", choices.size())),
      concat("option", place + 1));
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
        "which of 3 or 4 values belongs to an animal? (as ARC, Social IQa, OpenBookQA)"},
       value_row},
      {{"builtin:tools", "builtin", "", {"solution1", "solution2"}, "which of 2 tools does it? (as PIQA)"}, tool_row},
      {{"builtin:routines",
        "builtin",
        "",
        {"ending1", "ending2", "ending3", "ending4"},
        "which of 4 comes next? (as HellaSwag)"},
       routine_row},
      {{"builtin:sizes", "builtin", "", {"option1", "option2"}, "which of 2 is bigger or smaller? (as WinoGrande)"},
       size_row},
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
