#include "data/tasks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel::data {
namespace {

fs::path commonsense_folder() { return testing::data_folder() / "commonsense"; }

#define SKIP_WITHOUT(file) \
  if (!fs::exists(file)) GTEST_SKIP() << (file).string() << " is not there"

std::string message_of(std::string_view json) {
  try {
    load_rows(testing::TemporaryFile(json, "rows.json").path());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Row answered(std::string answer) {
  Row row;
  row.answer = std::move(answer);
  return row;
}

Row asked(std::string instruction) {
  Row row;
  row.instruction = std::move(instruction);
  return row;
}

TEST(Tasks, TheEightCommonsenseSetsComeFirst) {
  const std::vector<std::string> family = {"commonsense"};
  EXPECT_EQ(expand_tasks(family),
            (std::vector<std::string>{"arc_c", "arc_e", "boolq", "hellaswag", "obqa", "piqa", "siqa", "winogrande"}));
}

TEST(Tasks, ExpansionKeepsTheOrderWithoutDuplicates) {
  const std::vector<std::string> names = {"siqa", "commonsense", "boolq"};
  const auto expanded = expand_tasks(names);
  EXPECT_EQ(expanded.size(), 8u);
  EXPECT_EQ(expanded.front(), "siqa");
}

TEST(Tasks, AnUnknownNameIsRejectedWithTheKnownOnes) {
  try {
    find_task("arcc");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("arc_c"), std::string::npos) << error.what();
  }
}

std::vector<TaskInfo> counting_tasks(const RowOptions&) {
  return {{.name = "count:up", .file = "", .answers = {"one", "two"}, .source = "a family of this test"}};
}
TaskRows counting_rows(const RowOptions& from) {
  TaskRows set;
  for (int64_t i = 0; i < 6; ++i) set.rows.push_back(asked(concat(from.path.filename().string(), ' ', i)));
  return set;
}
TaskRows counting_test_rows(const TaskInfo&, const RowOptions& from) { return counting_rows(from); }

TEST(TaskFamilies, AddedFamiliesAreUsedLikeBuiltInOnes) {
  const TaskFamily counting{.name = "count",
                            .tasks = counting_tasks,
                            .training_rows = counting_rows,
                            .test_rows = counting_test_rows,
                            .in_folder = true};
  if (families().back() != "count") add_task_family(counting);  // one process may run the tests twice
  EXPECT_EQ(find_task("count:up").family, "count");
  EXPECT_EQ(expand_tasks(std::vector<std::string>{"count"}), std::vector<std::string>{"count:up"});
  EXPECT_EQ(training_rows("count", {.limit = 4}).rows.size(), 4u);
  const testing::TemporaryFolder folder;
  make_folders(folder.path() / "count");
  EXPECT_EQ(test_rows(find_task("count:up"), {.path = folder.path()}).rows.at(3).instruction, "count 3");
  EXPECT_EQ(test_rows(find_task("count:up"), {.path = folder.path() / "count"}).rows.at(3).instruction, "count 3");
  EXPECT_NE(testing::refusal([&] { add_task_family(counting); }).find("in the table already"), std::string::npos);
  auto taken = counting;
  taken.name = "piqa";
  EXPECT_NE(testing::refusal([&] { add_task_family(taken); }).find("in the table already"), std::string::npos);
  EXPECT_NE(testing::refusal([&] { add_task_family({.name = "half"}); }).find("lacks tasks"), std::string::npos);
}

TEST(LoadRows, ErrorsNameFileRowAndField) {
  EXPECT_NE(message_of(R"([{"instruction":"q","input":"","output":"o","answer":"a"},{"instruction":"q"}])")
                .find("rows.json: row 1: output"),
            std::string::npos);
  EXPECT_NE(message_of(R"([{"instruction":3,"output":"o","answer":"a"}])").find("row 0: instruction is 3"),
            std::string::npos);
  EXPECT_NE(message_of(R"({"a":1})").find("not a JSON array"), std::string::npos);
  EXPECT_NE(message_of("[3]").find("row 0"), std::string::npos);
  EXPECT_NE(message_of("[]").find("no rows"), std::string::npos);
  EXPECT_NE(message_of("[{\"instruction\":").find("rows.json"), std::string::npos);
}

TEST(LoadRows, InputMayBeAbsent) {
  const auto rows = load_rows(testing::TemporaryFile(R"([{"instruction":"q","output":"o","answer":"a"}])").path());
  EXPECT_EQ(rows.at(0).instruction, "q");
  EXPECT_EQ(rows.at(0).input, "");
}

TEST(ExtractAnswer, ReturnsTheLeftmostMatch) {
  EXPECT_EQ(extract_answer(find_task("arc_c"), "the correct answer is answer3, not answer1", false), "answer3");
  EXPECT_EQ(extract_answer(find_task("piqa"), "solution2 solution1", false), "solution2");
}

TEST(ExtractAnswer, IgnoresWordBoundaries) {
  EXPECT_EQ(extract_answer(find_task("boolq"), "that is untrue", false), "true");
  EXPECT_EQ(extract_answer(find_task("siqa"), "answer12", false), "answer1");
}

TEST(ExtractAnswer, IsCaseSensitiveUnlessLowered) {
  EXPECT_EQ(extract_answer(find_task("boolq"), "False", false), "");
  EXPECT_EQ(extract_answer(find_task("boolq"), "False", true), "false");
}

TEST(ExtractAnswer, AnswersOfAnotherTaskAreInvalid) {
  EXPECT_EQ(extract_answer(find_task("winogrande"), "the correct answer is answer1", false), "");
  EXPECT_EQ(extract_answer(find_task("hellaswag"), "ending5", false), "");
  EXPECT_EQ(extract_answer(find_task("arc_e"), "answer5", false), "answer5");
}

TEST(ExtractAnswer, AnOptionOfARowIsItsOwnAnswer) {
  Row row;
  row.options = {"no", "not sure", "A", "10"};
  const auto read = [&](std::string_view text, bool lowercase = false) {
    return extract_answer(find_task("arc_c"), row, text, lowercase);
  };
  EXPECT_EQ(read("I know: no."), "no");
  EXPECT_EQ(read("not sure at all"), "not sure");
  EXPECT_EQ(read("An A, not a B"), "A");
  EXPECT_EQ(read("it is 100 or (10)"), "10");
  EXPECT_EQ(read("NO"), "");
  EXPECT_EQ(read("NO, a", true), "no");
  EXPECT_EQ(read("(a)", true), "A");
  EXPECT_DOUBLE_EQ(chance_rate(find_task("arc_c"), std::vector{row}), 0.25);
}

TEST(Rates, MajorityIsTheShareOfTheMostFrequentAnswer) {
  const std::vector<Row> rows = {answered("a"), answered("b"), answered("a"), answered("a")};
  EXPECT_DOUBLE_EQ(majority_rate(rows), 0.75);
}

TEST(Rates, ChanceCountsTheOptionsOfEachRow) {
  const std::vector<Row> rows = {asked("x/y Answer format: answer1/answer2"),
                                 asked("Answer format: answer1/answer2/answer3/answer4")};
  EXPECT_DOUBLE_EQ(chance_rate(find_task("arc_c"), rows), (0.5 + 0.25) / 2);
  EXPECT_DOUBLE_EQ(chance_rate(find_task("boolq"), std::vector<Row>{asked("no format")}), 0.5);
}

TEST(Rates, ChanceIsThatOfTheAllowedAnswers) {
  const std::vector<std::pair<std::string, size_t>> formats = {{"Answer format: a/b\nSay a/b, and/or why.", 2},
                                                               {"Answer format: a//b/ /c/", 3},
                                                               {"Answer format:a/b/c", 3},
                                                               {"Answer format: a/b\r\n", 2},
                                                               {"Answer format: x/y/z\nAnswer format: a/b", 2},
                                                               {"Answer format: //", 5},
                                                               {"Answer format:\na/b", 5},
                                                               {"a/b", 5}};
  for (const auto& [text, count] : formats) {
    EXPECT_EQ(row_answers(find_task("arc_c"), asked(text)).size(), count) << text;
    EXPECT_EQ(chance_rate(find_task("arc_c"), std::vector{asked(text)}), 1.0 / static_cast<double>(count)) << text;
  }
  auto without = find_task("arc_c");
  without.answers.clear();
  EXPECT_EQ(chance_rate(without, std::vector{asked("a/b"), asked("Answer format: a/b")}), 0.25);
}

TEST(RowAnswers, AreReadFromTheAnswerFormatLine) {
  const auto task = find_task("arc_c");
  const auto of = [&](std::string_view text) { return row_answers(task, asked(std::string(text))); };
  EXPECT_EQ(of("q\n\nAnswer format: answer1/answer2/answer3"),
            (std::vector<std::string>{"answer1", "answer2", "answer3"}));
  EXPECT_EQ(of("q Answer format: a/b\n\nAnswer format:  x / y \nmore"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(of(""), task.answers);
  auto row = asked("Answer format: a/b");
  row.options = {"yes", "no", "a/b"};
  EXPECT_EQ(row_answers(task, row), row.options);
}

struct Published {
  const char* task;
  size_t rows;
  double majority, chance;
};

TEST(Commonsense, TestSetsHaveTheirPublishedSizesMajorityAndChance) {
  const auto folder = commonsense_folder();
  SKIP_WITHOUT(folder / "boolq" / "test.json");
  const Published table[] = {{"arc_c", 1172, 0.2654, 0.25},   {"arc_e", 2376, 0.2664, 0.25},
                             {"boolq", 3270, 0.6217, 0.5},    {"hellaswag", 10042, 0.2573, 0.25},
                             {"obqa", 500, 0.2760, 0.25},     {"piqa", 1838, 0.5049, 0.5},
                             {"siqa", 1954, 0.3362, 1.0 / 3}, {"winogrande", 1267, 0.5043, 0.5}};
  for (const auto& known : table) {
    const auto& task = find_task(known.task);
    const auto rows = test_rows(task, {.path = folder}).rows;
    EXPECT_EQ(rows.size(), known.rows) << known.task;
    EXPECT_NEAR(majority_rate(rows), known.majority, 5e-5) << known.task;
    EXPECT_NEAR(chance_rate(task, rows), known.chance, 1e-3) << known.task;
    for (const auto& row : rows) ASSERT_EQ(extract_answer(task, row.output, false), row.answer) << known.task;
  }
}

TEST(Commonsense, ALimitTakesTheSameRowsForTheSameSeed) {
  const auto folder = commonsense_folder();
  SKIP_WITHOUT(folder / "openbookqa" / "test.json");
  const auto& task = find_task("obqa");
  const RowOptions twenty{.path = folder, .limit = 20}, another{.path = folder, .limit = 20, .seed = 43};
  const auto some = test_rows(task, twenty).rows, again = test_rows(task, twenty).rows;
  ASSERT_EQ(some.size(), 20u);
  EXPECT_EQ(some[7].instruction, again[7].instruction);
  EXPECT_NE(some[0].instruction, test_rows(task, another).rows[0].instruction);
}

TEST(Commonsense, FilesAreRecognisedByTheirHash) {
  const auto folder = commonsense_folder();
  SKIP_WITHOUT(folder / "boolq" / "test.json");
  EXPECT_EQ(file_state(folder / "boolq" / "test.json"), FileState::kExact);
  EXPECT_EQ(file_state(folder / "hellaswag" / "test.json"), FileState::kRebuilt);
  EXPECT_EQ(file_state(testing::TemporaryFile("[]").path()), FileState::kUnknown);
}

TEST(Commonsense, RebuiltMixtureIsReportedAndLabelled) {
  const auto folder = commonsense_folder();
  SKIP_WITHOUT(folder / "commonsense_11k_rebuilt.json");
  if (fs::exists(folder / "commonsense_15k.json")) GTEST_SKIP() << "the published mixture is there";
  const auto set = training_rows("commonsense", {.path = folder});
  EXPECT_EQ(set.rows.size(), 11119u);
  EXPECT_NE(set.note.find("stand-in"), std::string::npos);
  ASSERT_EQ(set.files.size(), 1u);
  std::map<std::string, int64_t> kinds;
  for (const auto& row : set.rows) ++kinds[row.label];
  EXPECT_EQ(kinds["boolq"], 2000);
  EXPECT_EQ(kinds["piqa"], 2000);
  EXPECT_EQ(kinds["winogrande"], 2000);
  EXPECT_NEAR(static_cast<double>(kinds["arc_obqa"]), 5119, 20);  // a few ARC rows have three options, like Social IQa
}

TEST(Commonsense, ReportsAFileThatIsNotThePublishedOne) {
  const testing::TemporaryFile file(
      R"([{"instruction":"q","input":"","output":"the correct answer is ending2","answer":"ending2"}])",
      "commonsense_15k.json");
  const auto set = training_rows("commonsense", {.path = file.path().parent_path()});
  EXPECT_EQ(set.rows.at(0).label, "hellaswag");
  EXPECT_NE(set.note.find("not the published file"), std::string::npos);
}

TEST(Commonsense, RejectsAnEmptyFolder) {
  const testing::TemporaryFolder empty;
  EXPECT_THROW(training_rows("commonsense", {.path = empty.path()}), Error);
  EXPECT_THROW(training_rows("commonsense", {.path = empty.path() / "nothing"}), Error);
  EXPECT_THROW(training_rows("squad", {.path = empty.path()}), Error);
}

std::vector<std::string> builtin_names() {
  const std::vector<std::string> family = {"builtin"};
  return expand_tasks(family);
}

TEST(Builtin, UsesTheAnswerWordsOfAllEightRealTasks) {
  std::set<std::string> words;
  for (const auto& row : training_rows("builtin", {}).rows) words.insert(row.answer);
  for (const auto* word : {"true", "false", "solution1", "solution2", "ending1", "ending4", "option1", "option2",
                           "answer1", "answer3", "answer4"})
    EXPECT_TRUE(words.contains(word)) << word;
}

TEST(Builtin, TestRowsAreUniqueAndShuffledBySeed) {
  const std::map<std::string, size_t> counts{{"builtin:facts", 40},
                                             {"builtin:values", 20},
                                             {"builtin:tools", 14},
                                             {"builtin:routines", 11},
                                             {"builtin:sizes", 134}};
  for (const auto& name : builtin_names()) {
    std::vector<std::string> asked, asked_by_another;
    for (const auto& row : test_rows(find_task(name), {}).rows) asked.push_back(row.instruction);
    for (const auto& row : test_rows(find_task(name), {.seed = 7}).rows) asked_by_another.push_back(row.instruction);
    EXPECT_EQ(asked.size(), counts.at(name)) << name;
    EXPECT_NE(asked, asked_by_another) << name;
    const std::set<std::string> questions(asked.begin(), asked.end());
    EXPECT_EQ(questions.size(), asked.size()) << name << " asks something twice";
    EXPECT_EQ(questions, std::set<std::string>(asked_by_another.begin(), asked_by_another.end())) << name;
  }
}

TEST(Builtin, TasksWithTwoAnswersAreBalanced) {
  const std::map<std::string, double> favoured{{"builtin:values", 8.0 / 20}, {"builtin:routines", 4.0 / 11}};
  for (const auto& name : builtin_names()) {
    const auto& task = find_task(name);
    const auto rows = test_rows(task, {}).rows;
    const double chance = chance_rate(task, rows);
    EXPECT_DOUBLE_EQ(majority_rate(rows), favoured.contains(name) ? favoured.at(name) : chance) << name;
    for (const auto& row : rows) {
      ASSERT_EQ(extract_answer(task, row.output, false), row.answer) << name;
      ASSERT_NE(row.instruction.find(row.answer), std::string::npos) << name << ": an answer that is not offered";
    }
  }
}

TEST(Builtin, MajorityAnswersDoNotSolveTrainingRows) {
  std::map<std::string, std::vector<Row>> kinds;
  for (auto& row : training_rows("builtin", {.limit = 10000}).rows) kinds[row.label].push_back(row);
  ASSERT_EQ(kinds.size(), builtin_names().size());
  for (const auto& [name, rows] : kinds)
    EXPECT_NEAR(majority_rate(rows), chance_rate(find_task(name), rows), 0.08) << name;
}

TEST(Builtin, ALimitAboveTheNumberOfRowsIsReported) {
  const auto& task = find_task("builtin:tools");
  EXPECT_EQ(test_rows(task, {.limit = 15}).rows.size(), 14u);
  EXPECT_EQ(test_rows(task, {.limit = 15}).note, "builtin:tools has 14 rows, 15 were asked for: all are scored");
  EXPECT_EQ(test_rows(task, {.limit = 14}).note, "");
  EXPECT_EQ(test_rows(task, {.limit = 3}).rows.size(), 3u);
}

TEST(Builtin, RowsDoNotDependOnTheLimit) {
  for (const auto& name : builtin_names()) {
    const auto few = test_rows(find_task(name), {.limit = 5}).rows,
               many = test_rows(find_task(name), {.limit = 11}).rows;
    EXPECT_EQ(few[4].instruction, many[4].instruction) << name;
  }
  EXPECT_EQ(training_rows("builtin", {.limit = 5}).rows[4].instruction,
            training_rows("builtin", {.limit = 50}).rows[4].instruction);
}

TEST(Builtin, TestRowsDoNotOccurInTraining) {
  std::set<std::string> seen;
  for (const auto& row : training_rows("builtin", {}).rows) seen.insert(row.instruction);
  for (const auto& name : builtin_names())
    for (const auto& row : test_rows(find_task(name), {}).rows)
      EXPECT_FALSE(seen.contains(row.instruction)) << name << ": " << row.instruction;
}

TEST(CommonsenseFiles, RejectsAnAnswerOutsideTheOptions) {
  const testing::TemporaryFolder folder;
  make_folders(folder.path() / "boolq");
  const auto refused = [&](std::string_view answer, std::string_view output = "the correct answer is true") {
    write_file_atomic(folder.path() / "boolq" / "test.json",
                      concat(R"([{"instruction": "a", "input": "", "output": "x", "answer": "true"},)",
                             R"({"instruction": "b", "output": ")", output, R"(", "answer": ")", answer, "\"}]"));
    return testing::refusal([&] { test_rows(find_task("boolq"), {.path = folder.path()}); });
  };
  for (const auto* answer : {"True", "false ", "maybe", "true/false"})
    EXPECT_NE(refused(answer).find(concat("test.json: row 1: answer is \"", answer,
                                          "\", which can never be right, allowed: true, false")),
              std::string::npos)
        << refused(answer);
  EXPECT_NE(refused("").find("row 1: answer is empty"), std::string::npos) << refused("");
  EXPECT_NE(refused("true", " ").find("row 1: output is empty"), std::string::npos);
  EXPECT_EQ(refused("true"), "no error");
}

}  // namespace
}  // namespace evenkeel::data
