#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/testing.h"
#include "data/tasks.h"

namespace evenkeel {
namespace {

/// Checks what every registered family of tasks must provide (docs/tutorial-new-task.md), including those of other
/// programs. A family without its files is skipped.
class Tasks : public ::testing::TestWithParam<std::string_view> {
 protected:
  Tasks() {
    std::string text;
    for (int i = 0; i < 40; ++i) text += concat("{\"prompt\": \"question ", i, "\", \"completion\": \"answer\"}\n");
    write_file_atomic(own_.path() / "rows.jsonl", text);
    all_.path = testing::data_folder();
    all_.files.train = {(own_.path() / "rows.jsonl").string()};
  }

  void SetUp() override {
    if (family().in_folder && !path_exists(all_.path / family().name))
      GTEST_SKIP() << (all_.path / family().name).string() << " is not there";
  }

  static const data::TaskFamily& family() { return data::find_task_family(GetParam()); }

  data::RowOptions with(int64_t limit, uint64_t seed = 42) const {
    auto options = all_;
    options.limit = limit, options.seed = seed;
    return options;
  }

  std::vector<data::TaskInfo> own_tasks() const {
    auto all = data::tasks(all_);
    std::erase_if(all, [](const data::TaskInfo& task) { return task.family != GetParam(); });
    return all;
  }

  static std::vector<std::string> texts(std::span<const data::Row> rows) {
    std::vector<std::string> all;
    for (const auto& row : rows) all.push_back(row.instruction + "\n" + row.input + "\n" + row.output);
    return all;
  }

  const testing::TemporaryFolder own_;
  data::RowOptions all_;
};

std::vector<std::string_view> names_of_families() {
  std::vector<std::string_view> names;
  for (const auto& family : data::task_families()) names.push_back(family.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Tasks, ::testing::ValuesIn(names_of_families()),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Tasks, RowsDependOnTheSeed) {
  EXPECT_EQ(texts(data::training_rows(GetParam(), with(9)).rows), texts(data::training_rows(GetParam(), with(9)).rows));
  EXPECT_NE(texts(data::training_rows(GetParam(), with(9)).rows),
            texts(data::training_rows(GetParam(), with(9, 43)).rows));
  for (const auto& task : own_tasks())
    EXPECT_EQ(texts(data::test_rows(task, with(3)).rows), texts(data::test_rows(task, with(3)).rows)) << task.name;
}

TEST_P(Tasks, LimitsAreRespected) {
  EXPECT_EQ(data::training_rows(GetParam(), with(7)).rows.size(), 7u);
  for (const auto& task : own_tasks()) EXPECT_EQ(data::test_rows(task, with(2)).rows.size(), 2u) << task.name;
}

TEST_P(Tasks, EveryRowHasAnAnswerAndALabel) {
  for (const auto& key : data::label_keys(GetParam())) {
    auto options = with(50);
    options.label = key;
    for (const auto& row : data::training_rows(GetParam(), options).rows) {
      ASSERT_FALSE(row.answer.empty() || row.label.empty()) << row.instruction;
      ASSERT_FALSE(row.output.empty() && row.turns.empty()) << row.instruction;
    }
  }
}

TEST_P(Tasks, TheAnswerOfATestRowIsExtractedFromItsOutput) {
  for (const auto& task : own_tasks())
    for (const auto& row : data::test_rows(task, with(50)).rows) {
      if (task.scoring == data::Scoring::kChoice)
        ASSERT_EQ(data::extract_answer(task, row, row.output, false), row.answer) << task.name << ": " << row.output;
      else
        ASSERT_FALSE(row.references.empty()) << task.name << ": " << row.instruction;
    }
}

TEST_P(Tasks, GeneratedTestRowsAreNotTrainingRows) {
  if (!family().generates) GTEST_SKIP() << "rows are read from files";
  const auto trained = texts(data::training_rows(GetParam(), with(0)).rows);
  const std::set<std::string> seen(trained.begin(), trained.end());
  for (const auto& task : own_tasks())
    for (const auto& text : texts(data::test_rows(task, with(0)).rows)) EXPECT_FALSE(seen.contains(text)) << text;
}

}  // namespace
}  // namespace evenkeel
