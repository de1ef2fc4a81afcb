#include "data/row_files.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace evenkeel {
namespace {

class RowFiles : public ::testing::Test {
 protected:
  std::string file(const std::string& name, std::string_view text) const {
    const auto path = folder_.path() / name;
    write_file_atomic(path, text);
    return path.string();
  }

  TaskRows read(std::string_view text, FileRows what = {}) const {
    what.patterns = {file("rows.jsonl", text)};
    return file_rows(what);
  }

  std::string refused(std::string_view text, FileRows what = {}) const {
    return testing::refusal([&] { read(text, what); });
  }

  static void says(const std::string& line, std::initializer_list<std::string_view> words) {
    for (const auto word : words) EXPECT_NE(line.find(word), std::string::npos) << line << "\nlacks: " << word;
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(RowFiles, AnAlpacaRowIsAnInstructionAnInputAndAnOutput) {
  const auto set = read(R"({"instruction": "Add.", "input": "1, 2", "output": "3", "id": 7})"
                        "\n"
                        R"({"instruction": "Greet.", "output": "Hello"})");
  ASSERT_EQ(set.rows.size(), 2u);
  EXPECT_EQ(set.rows[0].instruction + "|" + set.rows[0].input + "|" + set.rows[0].output, "Add.|1, 2|3");
  EXPECT_EQ(set.rows[1].input, "");
  EXPECT_EQ(set.rows[1].answer, "Hello");
  EXPECT_EQ(set.rows[1].references, std::vector<std::string>{"Hello"});
  EXPECT_NE(set.read.find("2 rows of "), std::string::npos);
  EXPECT_NE(set.read.find("rows.jsonl (alpaca)"), std::string::npos) << set.read;
  EXPECT_EQ(set.files.size(), 1u);
}

TEST_F(RowFiles, APromptAndItsCompletionStayAsTheyAre) {
  const auto set = read(R"({"prompt": "2 + 2 =", "completion": " 4\n"})");
  EXPECT_EQ(set.rows[0].instruction, "2 + 2 =");
  EXPECT_EQ(set.rows[0].output, " 4\n");
}

constexpr std::string_view kShortTalk =
    R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"},
        {"role": "assistant", "content": "Yes."}]})";
constexpr std::string_view kLongTalk =
    R"([{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}])";

TEST_F(RowFiles, AConversationOfOneQuestionFitsAnyTemplate) {
  const auto row = read(concat("[", kShortTalk, "]")).rows.at(0);
  EXPECT_EQ(row.instruction, "Be brief.\n\nHi?");
  EXPECT_EQ(row.output, "Yes.");
  EXPECT_TRUE(row.turns.empty());
}

TEST_F(RowFiles, ConversationsStayTurnsWhereTheTemplateWritesThem) {
  const auto row = read(kLongTalk, {.conversations = true}).rows.at(0);
  ASSERT_EQ(row.turns.size(), 4u);
  EXPECT_EQ(row.turns[2].role + row.turns[2].content, "userc");
  EXPECT_EQ(row.answer, "d");
  EXPECT_EQ(row.instruction + row.output, "");
}

TEST_F(RowFiles, SeveralTurnsWithoutATemplateForThemAreRefusedEvenWhereBadRowsAreLeftOut) {
  says(refused(kLongTalk, {.strict = false}), {"[config]", "row 0", "4 turns", "data.template = \"chat\""});
}

TEST_F(RowFiles, AListAndLinesGiveTheSameRows) {
  const auto list = read(R"( [{"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": "d"}])");
  const auto marked = read(
      "\xEF\xBB\xBF{\"prompt\": \"a\", \"completion\": \"b\"}\r\n\r\n  \n"
      "{\"prompt\": \"c\", \"completion\": \"d\"}\r\n");
  ASSERT_EQ(list.rows.size(), marked.rows.size());
  for (size_t i = 0; i < list.rows.size(); ++i) EXPECT_EQ(list.rows[i].output, marked.rows[i].output);
}

TEST_F(RowFiles, WhatCannotBeReadIsNamedWithFileAndLine) {
  const std::string good = "{\"instruction\": \"q\", \"output\": \"a\"}\n";
  says(refused(good + "\n{\"instruction\": \"q\"}"), {"[data]", "rows.jsonl:3: output is missing"});
  says(refused(good + R"({"instruction": 3, "output": "a"})"), {"rows.jsonl:2", "instruction is 3, expected a string"});
  says(refused(good + R"({"instruction": "q", "output": " "})"), {"rows.jsonl:2", "output is empty"});
  says(refused(good + R"({"instruction": "", "output": "a"})"), {"rows.jsonl:2", "instruction is empty"});
  says(refused(good + "{\"instruction\": "), {"rows.jsonl:2: not valid JSON"});
  says(refused(good + "\"q\""), {"rows.jsonl:2", "expected an object"});
  says(refused(good + "{\"instruction\": \"\xff\", \"output\": \"a\"}"), {"rows.jsonl:2: is not UTF-8"});
  says(refused(R"([{"prompt": "q", "completion": "a"}, {"prompt": "q"}])"), {"row 1", "completion is missing"});
  says(refused("{\"conversations\": [], \"id\": 1}"), {"rows.jsonl:1", "conversations, id", "allowed: instruction"});
  says(refused(good + std::string(static_cast<size_t>(limits::kLine) + 1, 'x')),
       {"rows.jsonl:2: 16777217 bytes in one"});
  says(refused("\n \n"), {"rows.jsonl holds no rows"});
  says(refused("[]"), {"holds no rows"});
}

TEST_F(RowFiles, ConversationsThatTrainNothingAreNamed) {
  const auto talk = [&](std::string_view messages) { return refused(concat("{\"messages\": ", messages, "}")); };
  says(talk(R"([{"role": "user", "content": "a"}])"), {"messages", "the last message is of \"user\""});
  says(talk("[]"), {"messages", "no message is a user's"});
  says(talk(R"([{"role": "tool", "content": "a"}])"), {"messages[0].role is \"tool\"", "tools are not read"});
  says(talk(R"([{"role": "critic", "content": "a"}])"), {"\"critic\"", "allowed: system, user, assistant"});
  says(talk(R"([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}])"),
       {"messages[1].role", "system"});
  says(talk(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}])"),
       {"messages[1].content is empty"});
  says(talk(R"([{"role": "user", "content": [1]}])"), {"messages[0].content is [1], expected a string"});
}

TEST_F(RowFiles, BadRowsAreLeftOutAndCountedWhereThatIsAskedFor) {
  const auto set = read(
      "nothing\n{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"c\"}\n"
      "{\"prompt\": \"d\", \"completion\": \"e\"}\n",
      {.strict = false});
  ASSERT_EQ(set.rows.size(), 2u);
  EXPECT_EQ(set.rows[1].output, "e");
  says(set.note, {"2 of 4 rows of ", "cannot be read and are left out; the first: ", "rows.jsonl:1: not valid JSON"});
  says(set.read, {"2 rows of "});
  says(refused("{}\n{\"a\": 1}", {.strict = false}), {"none of the 2 rows of", "the first: ", "rows.jsonl:1"});
}

TEST_F(RowFiles, ChoicesAreAmongTheOptionsOfTheirRowOrOfAll) {
  const FileRows choices{.choices = true, .options = {"yes", "no"}};
  const auto set = read(R"({"prompt": "a", "completion": " no\n"})"
                        "\n"
                        R"({"prompt": "b", "completion": "It is 7.", "answer": "7", "choices": [" 7", "9\n"]})",
                        choices);
  EXPECT_EQ(set.rows[0].answer, "no");
  EXPECT_EQ(set.rows[0].options, (std::vector<std::string>{"yes", "no"}));
  EXPECT_EQ(set.rows[1].answer, "7");
  EXPECT_EQ(set.rows[1].options, (std::vector<std::string>{"7", "9"}));
  says(refused(R"({"prompt": "a", "completion": "maybe"})", choices), {"\"maybe\" is none of its options: yes, no"});
  says(refused(R"({"prompt": "a", "completion": "b"})", {.choices = true}), {"no options"});
}

TEST_F(RowFiles, ARowSaysItsLabelWhereAKeyIsNamed) {
  const auto labels = [&](const FileRows& what) {
    std::vector<std::string> all;
    for (const auto& row : read("{\"prompt\":\"a\",\"completion\":\"b\",\"unit\":\"x\"}\n{\"prompt\":\"a\","
                                "\"completion\":\"b\",\"unit\":4}",
                                what)
                               .rows)
      all.push_back(row.label);
    return all;
  };
  EXPECT_EQ(labels({.label = "mine"}), (std::vector<std::string>{"mine", "mine"}));
  EXPECT_EQ(labels({.label_field = "unit"}), (std::vector<std::string>{"x", "4"}));
  says(refused(R"({"prompt": "a", "completion": "b"})", {.label_field = "unit"}), {"rows.jsonl:1: unit is missing"});
}

TEST_F(RowFiles, PatternsStandForTheFilesTheyMatchByNameEachOnce) {
  const std::string row = R"({"prompt": "a", "completion": "b"})";
  const auto b = file("b.jsonl", row), a = file("a.jsonl", row), odd = file("[x].jsonl", row);
  file("c.txt", row);
  const auto all = (folder_.path() / "*.jsonl").string();
  EXPECT_EQ(found_files(std::vector{b, all}), (std::vector{b, odd, a}));
  EXPECT_EQ(found_files(std::vector{odd}), std::vector{odd});
  const auto none = (folder_.path() / "*.json").string();
  says(testing::refusal([&] { found_files(std::vector{none}); }), {"[data]", none, "matches no file"});
  says(testing::refusal([&] { found_files(std::vector{none.substr(1) + "gone"}); }), {"gone"});
  const auto gone = (folder_.path() / "gone.jsonl").string();
  says(testing::refusal([&] { found_files(std::vector{gone}); }), {"[io]", gone, "is not there"});
  const auto set = file_rows({.patterns = {all}});
  EXPECT_EQ(set.rows.size(), 3u);
  EXPECT_EQ(set.files, (std::vector{odd, a, b}));
}

TEST_F(RowFiles, EachFileHasAFormatOfItsOwn) {
  const auto one = file("1.json", R"([{"instruction": "q", "output": "a"}])");
  const auto two = file("2.jsonl", R"({"prompt": "c", "completion": "d"})");
  const auto set = file_rows({.patterns = {one, two}});
  EXPECT_EQ(set.rows.size(), 2u);
  says(set.read, {"(alpaca), 1 rows of", "(prompt_completion)"});
  says(testing::refusal([&] {
         file_rows({.patterns = {one, two}, .format = RowFormat::kAlpaca});
       }),
       {"2.jsonl:1: instruction is missing"});
}

}  // namespace
}  // namespace evenkeel
