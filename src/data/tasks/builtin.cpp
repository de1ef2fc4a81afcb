// The built-in tasks ask about the world of data/builtin_world.h in the LLM-Adapters format, with the answer words of
// the eight commonsense sets. A quarter of the subjects is held out for testing. Training rows draw from the other
// subjects with replacement. Test rows ask about each held-out subject once.
#include <algorithm>
#include <array>

#include "base/plain/error.h"
#include "base/random/random.h"
#include "data/builtin_world.h"
#include "data/tasks/family.h"
#include "data/tasks/world_questions.h"

namespace evenkeel::data {
namespace {

constexpr int64_t kTrainingRows = 2400;

enum Kind : uint64_t { kFacts, kValues, kTools, kRoutines, kSizes, kKindCount };

size_t relation_count() { return world::small_world().topics()[0].relations.size(); }

struct Thing {
  uint64_t kind, a, b;
};

/// Draws until the subject is one for training.
template <typename Draw>
Thing draw_trained(const Draw& draw) {
  for (;;)
    if (const Thing thing = draw(); !world::held_out(thing.kind, thing.a, thing.b)) return thing;
}

/// Returns every held-out subject (a, b) of a kind, with b < width(a).
template <typename Width>
std::vector<Thing> held_out_things(uint64_t kind, uint64_t count, const Width& width) {
  std::vector<Thing> things;
  for (uint64_t a = 0; a < count; ++a)
    for (uint64_t b = 0; b < static_cast<uint64_t>(width(a)); ++b)
      if (world::held_out(kind, a, b)) things.push_back({kind, a, b});
  return things;
}

Thing draw_fact(RandomStream& stream) {
  return {kFacts, stream.below(world::animals().size()), stream.below(relation_count())};
}
std::vector<Thing> held_out_facts() {
  return held_out_things(kFacts, world::animals().size(), [](uint64_t) { return relation_count(); });
}
world::Subject subject_of(const Thing& fact) {
  return {.entity = static_cast<int64_t>(fact.a), .relation = static_cast<int64_t>(fact.b)};
}

// --- facts, as BoolQ: is a fact true? ---

Row fact_question(const Thing& fact, uint64_t off) { return fact_row(world::small_world(), subject_of(fact), off); }
uint64_t wrong_values(const Thing& fact) { return false_values(world::small_world(), subject_of(fact)); }

Row draw_fact_row(RandomStream& stream) {
  const auto fact = draw_trained([&] { return draw_fact(stream); });
  const bool is_true = stream.below(2) == 0;
  return fact_question(fact, is_true ? 0 : 1 + stream.below(wrong_values(fact)));
}

/// Returns a row with the true value and a row with another value for each fact.
std::vector<Row> fact_rows() {
  std::vector<Row> rows;
  for (const auto& fact : held_out_facts()) {
    rows.push_back(fact_question(fact, 0));
    rows.push_back(fact_question(fact, 1 + rows.size() / 2 % wrong_values(fact)));
  }
  return rows;
}

// --- values, as ARC and OpenBookQA: which of four values belongs to an animal? ---

Row value_question(const Thing& fact) { return value_row(world::small_world(), subject_of(fact)); }

Row draw_value_row(RandomStream& stream) {
  // The position of the answer is drawn first, so that all answers are equally frequent.
  const auto place = static_cast<int64_t>(stream.below(kValueChoices));
  return value_question(draw_trained([&] {
    for (;;)
      if (const auto fact = draw_fact(stream); right_choice(world::small_world(), subject_of(fact)) == place)
        return fact;
  }));
}

std::vector<Row> value_rows() {
  std::vector<Row> rows;
  for (const auto& fact : held_out_facts()) rows.push_back(value_question(fact));
  return rows;
}

// --- tools, as PIQA: does a tool do it? ---

/// \param off  0 asks for the right tool, 1 and more for another one
Row tool_question(uint64_t purpose, uint64_t off) {
  const auto tools = world::tools();
  constexpr std::array<std::string_view, 2> kChoices = {"it helps", "it does not help"};
  return question_row(
      concat("Please choose the correct solution to the question: does the ",
             tools[(purpose + off) % tools.size()].name, " help to ", tools[purpose].purpose, "?\n\n",
             world::numbered("Solution", kChoices, "\n\n"), "\n\n", format_line("solution", kChoices.size())),
      off == 0 ? "solution1" : "solution2");
}

Row draw_tool_row(RandomStream& stream) {
  const auto count = world::tools().size();
  const auto thing = draw_trained([&] { return Thing{kTools, stream.below(count), 0}; });
  const bool helps = stream.below(2) == 0;
  return tool_question(thing.a, helps ? 0 : 1 + stream.below(count - 1));
}

/// Returns a row with the right tool and a row with another tool for each purpose.
std::vector<Row> tool_rows() {
  const auto count = world::tools().size();
  std::vector<Row> rows;
  for (const auto& thing : held_out_things(kTools, count, [](uint64_t) { return 1; })) {
    rows.push_back(tool_question(thing.a, 0));
    rows.push_back(tool_question(thing.a, 1 + rows.size() / 2 % (count - 1)));
  }
  return rows;
}

// --- routines, as HellaSwag: where does an activity belong, of four routines? ---

constexpr uint64_t kRoutineChoices = 4;

Row routine_question(const Thing& activity) {
  const auto routines = world::routines();
  const uint64_t place = activity.a % kRoutineChoices, first = activity.a - place;
  std::vector<std::string_view> choices;
  for (uint64_t i = 0; i < kRoutineChoices; ++i) choices.push_back(routines[first + i].name);
  return question_row(concat("Please choose the correct ending to complete the given sentence: they ",
                             routines[activity.a].steps[activity.b], "\n\n", world::numbered("Ending", choices, " "),
                             "\n\n", format_line("ending", kRoutineChoices)),
                      concat("ending", place + 1));
}

Row draw_routine_row(RandomStream& stream) {
  const auto routines = world::routines();
  const uint64_t place = stream.below(kRoutineChoices);  // drawn first, so that all answers are equally frequent
  return routine_question(draw_trained([&] {
    const uint64_t routine = place + kRoutineChoices * stream.below(routines.size() / kRoutineChoices);
    return Thing{kRoutines, routine, stream.below(routines[routine].steps.size())};
  }));
}

std::vector<Row> routine_rows() {
  const auto routines = world::routines();
  const auto steps = [&](uint64_t routine) { return routines[routine].steps.size(); };
  std::vector<Row> rows;
  for (const auto& activity : held_out_things(kRoutines, routines.size(), steps))
    rows.push_back(routine_question(activity));
  return rows;
}

// --- sizes, as WinoGrande: which word fills the blank? ---

Row size_question(uint64_t a, uint64_t b) {
  const bool bigger = world::size_of(static_cast<int64_t>(a)) > world::size_of(static_cast<int64_t>(b));
  constexpr std::array<std::string_view, 2> kChoices = {"bigger", "smaller"};
  return question_row(
      concat("Please choose the correct answer to fill in the blank to complete the given sentence: the ",
             world::animals()[a], " is _ than the ", world::animals()[b], "\n\n",
             world::numbered("Option", kChoices, " "), " ", format_line("option", kChoices.size())),
      bigger ? "option1" : "option2");
}

Row draw_size_row(RandomStream& stream) {
  const auto count = world::animals().size();
  const auto pair = draw_trained([&] {
    const uint64_t a = stream.below(count);
    const uint64_t b = (a + 1 + stream.below(count - 1)) % count;
    return Thing{kSizes, std::min(a, b), std::max(a, b)};
  });
  const bool turned = stream.below(2) == 0;
  return turned ? size_question(pair.b, pair.a) : size_question(pair.a, pair.b);
}

/// Returns rows for each pair in both orders. The smaller number comes first in the name of a pair.
std::vector<Row> size_rows() {
  const auto count = world::animals().size();
  std::vector<Row> rows;
  for (const auto& pair : held_out_things(kSizes, count, [&](uint64_t) { return count; })) {
    if (pair.a >= pair.b) continue;
    rows.push_back(size_question(pair.a, pair.b));
    rows.push_back(size_question(pair.b, pair.a));
  }
  return rows;
}

struct BuiltinTask {
  TaskInfo info;
  Row (*draw)(RandomStream& stream);  ///< draws a training row
  std::vector<Row> (*test)();         ///< returns all test rows
};

const std::array<BuiltinTask, kKindCount>& entries() {
  static const std::array<BuiltinTask, kKindCount> table = {{
      {{"builtin:facts", "", {"true", "false"}, "is a fact of the built-in world true? (as BoolQ)"},
       draw_fact_row,
       fact_rows},
      {{"builtin:values",
        "",
        {"answer1", "answer2", "answer3", "answer4", "answer5"},
        "which of 4 values belongs to an animal? (as ARC, OpenBookQA)"},
       draw_value_row,
       value_rows},
      {{"builtin:tools", "", {"solution1", "solution2"}, "does a tool do it? (as PIQA)"}, draw_tool_row, tool_rows},
      {{"builtin:routines",
        "",
        {"ending1", "ending2", "ending3", "ending4"},
        "which of 4 routines has an activity? (as HellaSwag)"},
       draw_routine_row,
       routine_rows},
      {{"builtin:sizes", "", {"option1", "option2"}, "bigger or smaller? (as WinoGrande)"}, draw_size_row, size_rows},
  }};
  return table;
}

std::vector<TaskInfo> builtin_tasks(const RowOptions&) {
  std::vector<TaskInfo> infos;
  for (const auto& entry : entries()) infos.push_back(entry.info);
  return infos;
}

TaskRows builtin_test_rows(const TaskInfo& task, const RowOptions& from) {
  const auto& all = entries();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const BuiltinTask& e) { return e.info.name == task.name; });
  EK_CHECK(found != all.end(), kInternal, "task ", task.name, " is not built in");
  auto rows = found->test();
  for (auto& row : rows) row.label = task.name;
  RandomStream(from.seed, concat("builtin-test-", found - all.begin())).shuffle(std::span(rows));
  return {.rows = std::move(rows)};
}

TaskRows builtin_training_rows(const RowOptions& from) {
  TaskRows set;
  for (int64_t i = 0; i < (from.limit > 0 ? from.limit : kTrainingRows); ++i) {
    RandomStream stream(from.seed, "builtin-train", static_cast<uint64_t>(i));
    const auto& entry = entries()[stream.below(entries().size())];
    set.rows.push_back(entry.draw(stream));
    set.rows.back().label = entry.info.name;
  }
  return set;
}

}  // namespace

TaskFamily builtin() {
  return {.name = "builtin",
          .tasks = builtin_tasks,
          .training_rows = builtin_training_rows,
          .test_rows = builtin_test_rows,
          .generates = true};
}

}  // namespace evenkeel::data
