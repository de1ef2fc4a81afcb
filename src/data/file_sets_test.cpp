#include "data/file_sets.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "base/testing.h"
#include "data/tasks.h"

namespace evenkeel::data {
namespace {

FilesConfig config_of(std::string_view toml) {
  return config::read<FilesConfig>(config::Table::parse(toml, "run.toml"));
}

std::string rows_text(int64_t count, std::string_view name) {
  std::string text;
  for (int64_t i = 0; i < count; ++i)
    text += concat("{\"prompt\": \"", name, " ", i, "\", \"completion\": \"", i % 3, "\"}\n");
  return text;
}

std::set<std::string> questions_of(std::span<const Row> rows) {
  std::set<std::string> questions;
  for (const auto& row : rows) questions.insert(row.instruction);
  return questions;
}

class FileSets : public ::testing::Test {
 protected:
  FileSets() {
    write_file_atomic(folder_.path() / "a.jsonl", rows_text(30, "a"));
    write_file_atomic(folder_.path() / "b.jsonl", rows_text(12, "b"));
  }

  std::string path(std::string_view name) const { return (folder_.path() / name).string(); }

  /// Returns options with the set "files" of a.jsonl, modified by `change`.
  RowOptions one(const std::function<void(FileSet&)>& change = [](FileSet&) {}) const {
    RowOptions from;
    from.files.train = {path("a.jsonl")};
    change(from.files);
    return from;
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(FileSets, KeysOfAllSetsAreDefaultsOfNamedSets) {
  const auto config =
      config_of("held_out = 0.25\nformat = 'messages'\n[x]\ntrain = ['a']\n[y]\ntest = ['b']\nformat = 'alpaca'");
  const auto sets = config.by_task();
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets.at("files:x").format, RowFormat::kMessages);
  EXPECT_EQ(sets.at("files:x").held_out, 0.25);
  EXPECT_EQ(sets.at("files:y").format, RowFormat::kAlpaca);
  EXPECT_EQ(config::write(config_of(config::write(config))), config::write(config));
}

TEST_F(FileSets, RejectsEmptySetsAndUselessSettings) {
  const auto said = [](std::string_view toml) { return testing::refusal([&] { config_of(toml); }); };
  EXPECT_NE(said("[x]\nstrict = false").find("x names no files"), std::string::npos);
  EXPECT_NE(said("train = ['a']\n[x]\ntest = ['b']").find("in the sets alone"), std::string::npos);
  EXPECT_NE(said("['a b']\ntrain = ['a']").find("letters, digits"), std::string::npos);
  EXPECT_NE(said("options = ['yes']").find("score = \"choice\""), std::string::npos);
  EXPECT_NE(said("held_out = 1.0").find("less than 1"), std::string::npos);
  EXPECT_NE(said("train = ['']").find("train"), std::string::npos);
  EXPECT_NE(said("[x]\ntrian = ['a']").find("x.trian is not a known key"), std::string::npos);
}

TEST_F(FileSets, EverySetIsATask) {
  RowOptions from;
  from.files.sets["x"].train = {path("a.jsonl")};
  from.files.sets["y"].test = {path("b.jsonl")};
  from.files.sets["z"].train = {path("b.jsonl")};
  from.files.sets["z"].held_out = 0;
  const std::vector<std::string> all = {"files"}, last = {"files:z"};
  EXPECT_EQ(expand_tasks(all, from), (std::vector<std::string>{"files:x", "files:y"}));
  EXPECT_EQ(expand_tasks(last, from), last);
  EXPECT_NE(testing::refusal([&] { test_rows(find_task("files:z", from), from); }).find("no rows to test with"),
            std::string::npos);
  EXPECT_EQ(test_rows(find_task("files:y", from), from).rows.size(), 12u);
  EXPECT_EQ(training_rows("files", from).rows.size(), 27u + 12u);
  EXPECT_EQ(test_files(find_task("files:x", from), from), std::vector{path("a.jsonl")});
}

TEST_F(FileSets, AFileOfSeveralSetsIsReadOnce) {
  std::filesystem::create_symlink("a.jsonl", path("link.jsonl"));
  std::filesystem::copy_file(path("b.jsonl"), path("copy.jsonl"));
  RowOptions from;
  from.files.sets["x"].train = {path("a.jsonl"), path("b.jsonl")};
  from.files.sets["y"].train = {path("link.jsonl"), path("copy.jsonl")};
  for (auto& [name, set] : from.files.sets) set.held_out = 0.5;
  const auto set = training_rows("files", from);
  EXPECT_EQ(set.files, (std::vector{path("a.jsonl"), path("b.jsonl"), path("copy.jsonl")}));
  EXPECT_NE(set.note.find("link.jsonl is in several sets: its rows train once"), std::string::npos) << set.note;
  EXPECT_NE(set.note.find(concat("copy.jsonl is a copy of ", path("b.jsonl"))), std::string::npos) << set.note;
  for (const auto& row : set.rows) EXPECT_NE(*row.place.file, path("link.jsonl"));
  for (const auto& place : set.held_out) EXPECT_NE(*place.file, path("link.jsonl"));
}

/// Returns how often a text has some words.
int count_of(std::string_view words, std::string_view text) {
  int count = 0;
  for (auto at = text.find(words); at != text.npos; at = text.find(words, at + 1)) ++count;
  return count;
}

TEST_F(FileSets, NumbersOfAFileOfSeveralSetsCountOnce) {
  const auto bad = path("bad.jsonl");
  write_file_atomic(bad, rows_text(9, "bad") + "{\"prompt\": \"\"}\n");
  RowOptions from;
  from.files.sets["x"].train = {bad};
  from.files.sets["y"].train = {bad, path("b.jsonl")};
  for (const double held_out : {0.0, 0.25}) {
    for (auto& [name, set] : from.files.sets) set.held_out = held_out, set.strict = false;
    from.files.sets["y"].strict = held_out == 0;  // then the bad row is not read again
    const auto set = training_rows("files", from);
    EXPECT_EQ(set.left_out, 1);
    EXPECT_EQ(count_of("cannot be read", set.note), 1) << set.note;
    EXPECT_EQ(count_of("format, ignore and label of files:y are not used", set.note), 1) << set.note;
    EXPECT_EQ(count_of(concat("9 rows of ", bad), set.read), 1) << set.read;
    EXPECT_EQ(set.files, (std::vector{bad, path("b.jsonl")}));
    EXPECT_EQ(set.rows.size() + set.held_out.size(), 9u + 12u);
  }
  const auto trained = questions_of(training_rows("files", from).rows);
  for (const auto& question : questions_of(test_rows(find_task("files:y", from), from).rows))
    EXPECT_FALSE(question.starts_with("b ") && trained.contains(question)) << question;
}

TEST_F(FileSets, ASetWhoseFilesAllBelongToEarlierSetsAddsNothing) {
  RowOptions from;
  for (const auto* name : {"x", "y"}) from.files.sets[name].train = {path("a.jsonl")};
  const auto set = training_rows("files", from);
  EXPECT_EQ(set.rows.size(), 27u);
  EXPECT_EQ(set.read, concat("30 rows of ", path("a.jsonl"),
                             " (prompt_completion), 27 of them to train on, the others held out"));
}

TEST_F(FileSets, TestFilesNeedNoLabel) {
  write_file_atomic(path("labelled.jsonl"), R"({"prompt": "a", "completion": "b", "site": "north"})");
  auto from = one(
      [&](FileSet& set) { set.train = {path("labelled.jsonl")}, set.test = {path("b.jsonl")}, set.label = "site"; });
  EXPECT_EQ(training_rows("files", from).rows.at(0).label, "north");
  EXPECT_EQ(test_rows(find_task("files", from), from).rows.size(), 12u);
  from.files.train = {path("b.jsonl")};
  EXPECT_NE(testing::refusal([&] { training_rows("files", from); }).find("b.jsonl:1: site is missing"),
            std::string::npos);
}

TEST_F(FileSets, HeldOutRowsAreTestRowsOnly) {
  const auto from = one();
  const auto train = training_rows("files", from), test = test_rows(find_task("files", from), from);
  EXPECT_EQ(train.rows.size(), 27u);
  EXPECT_EQ(test.rows.size(), 3u);
  auto both = questions_of(train.rows);
  both.merge(questions_of(test.rows));
  EXPECT_EQ(both.size(), 30u);
  EXPECT_EQ(train.files, std::vector{path("a.jsonl")});
}

TEST_F(FileSets, SplitDependsOnTheSeed) {
  const auto held_out = [&](uint64_t seed, int64_t split_seed) {
    auto from = one([&](FileSet& set) { set.split_seed = split_seed, set.held_out = 0.4; });
    from.seed = seed;
    return questions_of(test_rows(find_task("files", from), from).rows);
  };
  EXPECT_EQ(held_out(1, 42), held_out(2, 42));
  EXPECT_NE(held_out(1, 42), held_out(1, 43));
}

TEST_F(FileSets, RowsWithTheSameQuestionStayOnOneSide) {
  write_file_atomic(folder_.path() / "a.jsonl", rows_text(20, "a") + rows_text(20, "a"));
  const auto from = one([](FileSet& set) { set.held_out = 0.3; });
  const auto train = questions_of(training_rows("files", from).rows);
  const auto test = test_rows(find_task("files", from), from).rows;
  EXPECT_EQ(test.size(), 12u);
  for (const auto& question : questions_of(test)) EXPECT_FALSE(train.contains(question)) << question;
}

TEST_F(FileSets, RowsWithTheSameQuestionStayOnOneSideInEveryFormat) {
  std::map<std::string, std::string> formats;
  for (int i = 0; i < 12; ++i) {
    const auto place = concat("number ", i), question = concat("Which animal is it?\n\n", place);
    const Json message = {{"role", "user"}, {"content", question}},
               answer = {{"role", "assistant"}, {"content", "fox"}};
    auto named = message;
    named["name"] = nullptr;
    const auto add = [&](const std::string& format, const Json& row) { formats[format] += row.dump() + "\n"; };
    add("alpaca", {{"instruction", "Which animal is it?"}, {"input", place}, {"output", "fox"}});
    add("texts", {{"prompt", question}, {"completion", "fox"}});
    add("messages", {{"messages", Json::array({message, answer})}});
    add("nulls", {{"messages", Json::array({named, answer})}});
  }
  const auto from = one([&](FileSet& set) {
    set.train.clear();
    for (const auto& [name, text] : formats) write_file_atomic(path(name + ".jsonl"), text);
    for (const auto& [name, text] : formats) set.train.push_back(path(name + ".jsonl"));
    set.held_out = 0.25;
  });
  for (const auto form : {PromptTemplate::kChat, PromptTemplate::kPaper}) {
    auto chosen = from;
    chosen.form = form;
    std::set<std::string> trained;
    for (const auto& row : training_rows("files", chosen).rows) trained.insert(question_text(row));
    const auto test = test_rows(find_task("files", chosen), chosen).rows;
    EXPECT_EQ(test.size(), 12u);
    for (const auto& row : test) EXPECT_FALSE(trained.contains(question_text(row))) << question_text(row);
  }
}

TEST_F(FileSets, TextsThatAskNothingAreHeldOutByWhatTheySay) {
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += Json{{"text", concat("Sentence ", i % 8)}}.dump() + "\n";
  auto from = one([&](FileSet& set) {
    write_file_atomic(path("texts.jsonl"), lines);
    set.train = {path("texts.jsonl")};
    set.score = Scoring::kNll;
    set.held_out = 0.25;
  });
  from.form = PromptTemplate::kPlain;
  std::set<std::string> trained;
  for (const auto& row : training_rows("files", from).rows) trained.insert(row.output);
  const auto test = test_rows(find_task("files", from), from).rows;
  EXPECT_EQ(test.size(), 3u);
  for (const auto& row : test) EXPECT_FALSE(trained.contains(row.output)) << row.output;
}

TEST_F(FileSets, QuestionsDifferByTurnsKeysAndVariables) {
  const auto with = [](std::vector<Turn> turns, const std::string& variables = "") {
    Row row;
    row.turns = std::move(turns);
    row.turns.push_back({"assistant", "a"});
    row.variables_json = variables;
    return row;
  };
  std::vector<Row> rows{with({{"user", "q"}}),
                        with({{"user", "q"}}, "{\"tools\":[]}"),
                        with({{"system", "q"}}),
                        with({{"system", ""}, {"user", "q"}}),
                        with({{"user", "q"}, {"assistant", "b"}, {"user", "q"}}),
                        with({{"user", "q\n\nq"}}),
                        with({{"user", "q\n\n"}}),
                        with({{"user", "user\n\nq"}})};
  rows.push_back(rows[0]);
  rows.back().turns[0].more = "{\"name\":\"Bob\"}";
  std::set<std::vector<std::string_view>> questions;
  for (const auto& row : rows) questions.insert(comparable_question(row));
  EXPECT_EQ(questions.size(), rows.size());
}

TEST_F(FileSets, ALimitDrawsRowsFromTheWholeMixture) {
  auto from = one([](FileSet& set) { set.held_out = 0; });
  from.limit = 5;
  EXPECT_EQ(training_rows("files", from).rows.size(), 5u);
  const std::vector<std::string> both = {"files", "builtin"};
  from.limit = 0;
  const auto all = training_rows(both, from);
  EXPECT_EQ(all.rows.size(), 30u + training_rows("builtin", {}).rows.size());
  EXPECT_EQ(all.rows[0].label, "files");
  from.limit = 200;
  std::set<std::string> labels;
  for (const auto& row : training_rows(both, from).rows) labels.insert(row.label.substr(0, 5));
  EXPECT_EQ(training_rows(both, from).rows.size(), 200u);
  EXPECT_EQ(labels, (std::set<std::string>{"files", "built"}));
}

TEST_F(FileSets, ReportsAFileForTrainingAndTesting) {
  const auto set = training_rows("files", one([&](FileSet& files) { files.test = {path("*.jsonl")}; }));
  EXPECT_NE(set.note.find("a.jsonl trains and tests"), std::string::npos) << set.note;
  EXPECT_EQ(set.rows.size(), 30u);
}

TEST_F(FileSets, ReportsAFileForTrainingAndTestingUnderAnyName) {
  const auto noted = [&](const std::string& test) {
    return training_rows("files", one([&](FileSet& files) { files.test = {path(test)}; })).note;
  };
  std::filesystem::create_symlink("a.jsonl", path("link.jsonl"));
  std::filesystem::create_hard_link(path("a.jsonl"), path("hard.jsonl"));
  std::filesystem::copy_file(path("a.jsonl"), path("copy.jsonl"));
  for (const auto* name : {"link.jsonl", "hard.jsonl", "copy.jsonl", "./a.jsonl"})
    EXPECT_NE(noted(name).find("a.jsonl trains and tests (as "), std::string::npos) << name << ": " << noted(name);
  EXPECT_EQ(noted("b.jsonl"), "");
  RowOptions sets;  // the training file of one set is the test file of another
  sets.files.sets["x"].train = {path("a.jsonl")};
  sets.files.sets["y"].test = {path("copy.jsonl")};
  EXPECT_NE(training_rows("files", sets).note.find("trains and tests"), std::string::npos);
}

TEST_F(FileSets, RejectsMissingFiles) {
  EXPECT_NE(testing::refusal([] { training_rows("files", {}); }).find("data.files.train"), std::string::npos);
  EXPECT_NE(testing::refusal([] { test_rows(find_task("files"), {}); }).find("has no files"), std::string::npos);
}

}  // namespace
}  // namespace evenkeel::data
