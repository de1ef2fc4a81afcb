// Facts of the large built-in world with other values than its text has, so that a base that was pretrained on that
// text has to learn them. Every third entity of a topic is asked about, in all its relations. Training rows state a
// fact in four wordings, test rows ask for it in a fifth one; the answer is one of the relation's values.
#include <array>

#include "base/plain/error.h"
#include "base/random/random.h"
#include "data/builtin_world.h"
#include "data/tasks/family.h"

namespace evenkeel::data {
namespace {

using world::Subject;

constexpr size_t kEveryEntity = 3;
constexpr uint64_t kValueSeed = 1;
constexpr int64_t kTestWording = 0;
constexpr std::array<int64_t, 4> kTrainingWordings = {1, 2, 3, 5};  // World::statement(); their last word is the value

std::string task_of(const world::Topic& topic) { return concat("builtin_changed:", topic.name); }

std::vector<TaskInfo> changed_tasks(const RowOptions&) {
  std::vector<TaskInfo> infos;
  for (const auto& topic : world::large_world().topics())
    infos.push_back({task_of(topic),
                     "",
                     {},
                     concat("which of 8 values, another than in the text, belongs to one of 40 ", topic.name, "?")});
  return infos;
}

std::vector<Subject> subjects_of(size_t topic) {
  const auto& of = world::large_world().topics()[topic];
  std::vector<Subject> subjects;
  for (size_t entity = 0; entity < of.entities.size(); entity += kEveryEntity)
    for (size_t relation = 0; relation < of.relations.size(); ++relation)
      subjects.push_back({static_cast<int64_t>(topic), static_cast<int64_t>(entity), static_cast<int64_t>(relation)});
  return subjects;
}

/// Returns the index of a value that the fact does not have in the text.
int64_t changed_value(const Subject& subject) {
  const auto& world = world::large_world();
  const auto count = static_cast<uint64_t>(world.values(subject).size());
  RandomStream stream(kValueSeed, "changed-values", static_cast<uint64_t>(subject.topic),
                      static_cast<uint64_t>(subject.entity) * 100 + static_cast<uint64_t>(subject.relation));
  return static_cast<int64_t>((static_cast<uint64_t>(world.value_of(subject)) + 1 + stream.below(count - 1)) % count);
}

/// Asks for the last word of a statement.
Row row_of(const Subject& subject, int64_t wording) {
  const auto& world = world::large_world();
  const auto values = world.values(subject);
  const int64_t value = changed_value(subject);
  const std::string answer(values[static_cast<size_t>(value)]), statement = world.statement(subject, value, wording);
  return {.instruction = statement.substr(0, statement.size() - answer.size() - 1),
          .input = "",
          .output = " " + answer,
          .answer = answer,
          .label = std::string(world.topic(subject).name),
          .options = {values.begin(), values.end()}};
}

TaskRows changed_test_rows(const TaskInfo& task, const RowOptions&) {
  const auto& topics = world::large_world().topics();
  TaskRows set;
  for (size_t t = 0; t < topics.size(); ++t)
    if (task_of(topics[t]) == task.name)
      for (const auto& subject : subjects_of(t)) set.rows.push_back(row_of(subject, kTestWording));
  EK_CHECK(!set.rows.empty(), kInternal, "task ", task.name, " is not of the changed world");
  return set;
}

TaskRows changed_training_rows(const RowOptions&) {
  TaskRows set;
  for (size_t t = 0; t < world::large_world().topics().size(); ++t)
    for (const auto& subject : subjects_of(t))
      for (const int64_t wording : kTrainingWordings) set.rows.push_back(row_of(subject, wording));
  return set;
}

}  // namespace

TaskFamily builtin_changed() {
  return {.name = "builtin_changed",
          .tasks = changed_tasks,
          .training_rows = changed_training_rows,
          .test_rows = changed_test_rows};
}

}  // namespace evenkeel::data
