// The tasks of the large built-in world: one for each topic, which asks for values, and one that asks whether facts of
// all topics are true. Of the facts of a topic, 400 are held out for testing, and training rows draw from the others
// with replacement. A test row asks about a fact of its own.
#include <algorithm>
#include <array>

#include "base/plain/error.h"
#include "base/random/random.h"
#include "data/tasks/family.h"
#include "data/tasks/world_questions.h"

namespace evenkeel::data {
namespace {

using world::Subject;

constexpr int64_t kRowsByDefault = 2400, kHeldOut = 400;
constexpr uint64_t kSplitSeed = 1;
constexpr std::string_view kFactsTask = "builtin_large:facts";

size_t topic_count() { return world::large_world().topics().size(); }

/// Returns all facts of a topic in an order that depends on the topic. The first kHeldOut of them are held out.
std::vector<Subject> shuffled_facts(int64_t topic) {
  const auto& of = world::large_world().topics()[static_cast<size_t>(topic)];
  std::vector<Subject> facts;
  for (size_t entity = 0; entity < of.entities.size(); ++entity)
    for (size_t relation = 0; relation < of.relations.size(); ++relation)
      facts.push_back({topic, static_cast<int64_t>(entity), static_cast<int64_t>(relation)});
  RandomStream(kSplitSeed, "large-world-held-out", static_cast<uint64_t>(topic)).shuffle(std::span(facts));
  return facts;
}

std::span<const Subject> facts_of(size_t topic) {
  static const auto all = [] {
    std::vector<std::vector<Subject>> of_topics;
    for (size_t t = 0; t < topic_count(); ++t) of_topics.push_back(shuffled_facts(static_cast<int64_t>(t)));
    return of_topics;
  }();
  return all[topic];
}

Subject draw_trained(size_t topic, RandomStream& stream) {
  const auto trained = facts_of(topic).subspan(kHeldOut);
  return trained[stream.below(trained.size())];
}

/// \param off_by  decides the truth and the value that is asked for: even numbers ask for the true value
Row fact_or_not(const Subject& subject, uint64_t off_by) {
  return fact_row(world::large_world(), subject,
                  off_by % 2 == 0 ? 0 : 1 + off_by / 2 % false_values(world::large_world(), subject));
}

std::string task_of(size_t topic) { return concat("builtin_large:", world::large_world().topics()[topic].name); }

std::vector<TaskInfo> large_tasks(const RowOptions&) {
  std::vector<TaskInfo> infos;
  for (size_t t = 0; t < topic_count(); ++t)
    infos.push_back({task_of(t),
                     "",
                     {"answer1", "answer2", "answer3", "answer4"},
                     concat("which of 4 values belongs to one of 120 ", world::large_world().topics()[t].name, "?")});
  infos.push_back({std::string(kFactsTask), "", {"true", "false"}, "is a fact of any of the 4 topics true?"});
  return infos;
}

/// Asks about as many facts of each topic.
std::vector<Row> all_facts_rows() {
  std::vector<Row> rows;
  const size_t of_each = static_cast<size_t>(kHeldOut) / topic_count();
  for (size_t t = 0; t < topic_count(); ++t)
    for (size_t i = 0; i < of_each; ++i) rows.push_back(fact_or_not(facts_of(t)[i], i));
  return rows;
}

std::vector<Row> topic_rows(size_t topic) {
  std::vector<Row> rows;
  for (const auto& fact : facts_of(topic).first(kHeldOut)) rows.push_back(value_row(world::large_world(), fact));
  return rows;
}

TaskRows large_test_rows(const TaskInfo& task, const RowOptions& from) {
  size_t number = 0;
  while (number < topic_count() && task_of(number) != task.name) ++number;
  EK_CHECK(number < topic_count() || task.name == kFactsTask, kInternal, "task ", task.name,
           " is not of the large world");
  auto rows = number < topic_count() ? topic_rows(number) : all_facts_rows();
  for (auto& row : rows) row.label = task.name;
  RandomStream(from.seed, "builtin-large-test", number).shuffle(std::span(rows));
  return {.rows = std::move(rows)};
}

/// Draws one of the five tasks, and for the last one a topic.
Row draw_training_row(RandomStream& stream, bool label_is_topic) {
  const size_t task = stream.below(topic_count() + 1);
  const size_t topic = task < topic_count() ? task : stream.below(topic_count());
  const auto subject = draw_trained(topic, stream);
  auto row = task < topic_count() ? value_row(world::large_world(), subject) : fact_or_not(subject, stream.below(14));
  row.label = label_is_topic ? std::string(world::large_world().topics()[topic].name)
                             : (task < topic_count() ? task_of(topic) : std::string(kFactsTask));
  return row;
}

TaskRows large_training_rows(const RowOptions& from) {
  TaskRows set;
  for (int64_t i = 0; i < (from.limit > 0 ? from.limit : kRowsByDefault); ++i) {
    RandomStream stream(from.seed, "builtin-large-train", static_cast<uint64_t>(i));
    set.rows.push_back(draw_training_row(stream, from.label == "topic"));
  }
  return set;
}

}  // namespace

TaskFamily builtin_large() {
  return {.name = "builtin_large",
          .tasks = large_tasks,
          .training_rows = large_training_rows,
          .test_rows = large_test_rows,
          .label_keys = {"label", "topic"},
          .generates = true};
}

}  // namespace evenkeel::data
