#include "data/row_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/plain/json.h"
#include "base/testing.h"
#include "jinja/budget.h"

namespace evenkeel::data {
namespace {

class RowFiles : public ::testing::Test {
 protected:
  std::string file(const std::string& name, std::string_view text) const {
    const auto path = folder_.path() / name;
    write_file_atomic(path, text);
    return path.string();
  }

  TaskRows read(std::string_view text, FileRows what = {}, const std::string& name = "rows.jsonl") const {
    what.patterns = {file(name, text)};
    return file_rows(what);
  }

  std::string refused(std::string_view text, FileRows what = {}, const std::string& name = "rows.jsonl") const {
    return testing::refusal([&] { read(text, what, name); });
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

TEST_F(RowFiles, PromptAndCompletionAreUnchanged) {
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

TEST_F(RowFiles, AConversationWithOneQuestionWorksWithAnyTemplate) {
  const auto row = read(concat("[", kShortTalk, "]")).rows.at(0);
  EXPECT_EQ(row.instruction, "Be brief.\n\nHi?");
  EXPECT_EQ(row.output, "Yes.");
  EXPECT_TRUE(row.turns.empty());
}

TEST_F(RowFiles, ConversationsStayTurnsForAChatTemplate) {
  const auto row = read(kLongTalk, {.conversations = true}).rows.at(0);
  ASSERT_EQ(row.turns.size(), 4u);
  EXPECT_EQ(row.turns[2].role + row.turns[2].content, "userc");
  EXPECT_EQ(row.answer, "d");
  EXPECT_EQ(row.instruction, "");
  EXPECT_EQ(row.output, "d");  // the column that options are written to
}

TEST_F(RowFiles, RejectsSeveralTurnsWithoutAChatTemplate) {
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

TEST_F(RowFiles, ErrorsNameFileAndLine) {
  const std::string good = "{\"instruction\": \"q\", \"output\": \"a\"}\n";
  says(refused(good + "\n{\"instruction\": \"q\"}"), {"[data]", "rows.jsonl:3: output is missing"});
  says(refused(good + R"({"instruction": 3, "output": "a"})"), {"rows.jsonl:2", "instruction is 3, expected a string"});
  says(refused(good + R"({"instruction": "q", "output": " "})"), {"rows.jsonl:2", "output is empty"});
  says(refused(good + R"({"instruction": "", "output": "a"})"), {"rows.jsonl:2", "instruction is empty"});
  says(refused(good + "{\"instruction\": "), {"rows.jsonl:2: not valid JSON"});
  says(refused(good + "\"q\""), {"rows.jsonl:2", "expected an object"});
  says(refused(good + "{\"instruction\": \"\xff\", \"output\": \"a\"}"), {"rows.jsonl:2: is not UTF-8"});
  says(refused(R"([{"prompt": "q", "completion": "a"}, {"prompt": "q"}])"), {"row 1", "completion is missing"});
  says(refused("{\"chosen\": [], \"id\": 1}"), {"rows.jsonl:1", "chosen, id", "allowed: instruction"});
  says(refused(good + std::string(static_cast<size_t>(limits::kLine) + 1, 'x')),
       {"rows.jsonl:2: 16777217 bytes in one"});
  says(refused("\n \n"), {"rows.jsonl holds no rows"});
  says(refused("[]"), {"holds no rows"});
}

TEST_F(RowFiles, ARowWithAKeyTwiceIsRefused) {
  const std::string good = "{\"prompt\": \"q\", \"completion\": \"a\"}",
                    twice = R"({"prompt": "a", "prompt": "b", "completion": "c"})";
  constexpr std::string_view kSays = "the key \"prompt\" stands twice in one object";
  says(refused(concat(good, '\n', twice)),
       {concat("[data] ", (folder_.path() / "rows.jsonl").string(), ":2: ", kSays)});
  says(refused(concat('[', good, ',', twice, ']')), {concat("rows.jsonl: row 1: ", kSays)});
  says(refused(concat("{\"data\": [", good, ',', twice, "]}"), {}, "rows.json"), {concat("rows.json: row 1: ", kSays)});
  says(refused(R"([{"messages": [{"role": "user", "content": "a", "content": "b"}]}])"),
       {"row 0: the key \"content\" stands twice"});
  says(refused(concat("{\"data\": [], \"data\": [", good, "]}"), {}, "rows.json"),
       {"rows.json: the key \"data\" stands twice"});
  for (const auto& text : {concat(good, '\n', twice), concat('[', good, ',', twice, ']')}) {
    const auto set = read(text, {.strict = false});
    EXPECT_EQ(set.rows.size(), 1u);
    EXPECT_EQ(set.left_out, 1);
    says(set.note, {"1 of 2 rows", std::string(kSays)});
  }
}

TEST_F(RowFiles, APipeIsRefused) {
  const auto pipe = (folder_.path() / "pipe.jsonl").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  says(testing::refusal([&] { found_files(std::vector{pipe}); }), {"[data]", "pipe.jsonl is a pipe or a device"});
  says(testing::refusal([&] { found_files(std::vector<std::string>{"/dev/null"}); }),
       {"/dev/null is a pipe or a device"});
}

TEST_F(RowFiles, RejectsConversationsWithoutTargets) {
  const auto talk = [&](std::string_view messages) { return refused(concat("{\"messages\": ", messages, "}")); };
  says(talk(R"([{"role": "user", "content": "a"}])"), {"messages", "the last message is of \"user\""});
  says(talk("[]"), {"messages", "no message is a user's"});
  const auto then = [&](std::string_view message) {
    return talk(
        concat(R"([{"role": "user", "content": "a"}, )", message, R"(, {"role": "assistant", "content": "b"}])"));
  };
  says(then(R"({"role": "tool", "content": "a"})"), {"messages[1].role is \"tool\"", "template chat"});
  says(then(R"({"role": "critic", "content": "a"})"), {"\"critic\"", "allowed: system, user, assistant"});
  says(then(R"({"role": "system", "content": "b"})"), {"messages[1].role", "system"});
  says(talk(R"([{"role": "user", "content": " "}, {"role": "assistant", "content": "b"}])"), {"nothing is asked"});
  says(talk(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}])"),
       {"messages[1] of the assistant is empty"});
  says(talk(R"([{"role": "user", "content": [1]}])"), {"messages[0].content[0] is 1, expected an object"});
  says(talk(R"([{"role": "user", "content": 1}])"), {"messages[0].content is 1, expected a string"});
  says(talk(R"([{"role": "user"}])"), {"messages[0].content is missing"});
}

TEST_F(RowFiles, OtherTemplatesRejectKeysOfChatTemplates) {
  const auto said = [&](std::string_view key) {
    return refused(concat(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", )",
                          key, "}]}"));
  };
  says(said(R"("reasoning_content": "c")"),
       {"rows.jsonl:1: messages[1].reasoning_content would be lost", "data.template = \"chat\", --template chat"});
  says(said(R"("tool_calls": [{"id": 1}])"), {"tool_calls would be lost"});
  says(said(R"("name": "Bob")"), {"name would be lost"});
  EXPECT_EQ(said(R"("tool_calls": null, "weight": 1)"), "no error");
  says(refused(
           R"([{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
              "tools": [{"type": "function"}]}])"),
       {"tools would be lost"});
  says(
      refused(
          R"([{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
              {"role": "assistant", "content": "b"}]}])"),
      {"messages[0].content has 2 parts"});
}

TEST_F(RowFiles, AChatTemplateGetsEveryKeyInOrder) {
  const auto row = read(R"([{"messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "Bob"},
      {"role": "assistant", "content": null,
       "tool_calls": [{"function": {"name": "f", "arguments": {"z": 1, "a": 2.5}}}]},
      {"role": "tool", "content": "7", "tool_call_id": "x"}, {"role": "assistant", "content": "d"}],
      "tools": "[{\"type\": \"function\"}]", "documents": null, "chat_template_kwargs": {"enable_thinking": false}}])",
                        {.conversations = true})
                       .rows.at(0);
  ASSERT_EQ(row.turns.size(), 4u);
  EXPECT_EQ(row.turns[0].content, "ab");
  EXPECT_EQ(row.turns[1].more,
            R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"z":1,"a":2.5}}}]})");
  jinja::Budget budget;
  EXPECT_EQ(jinja::json_text(*row.turns[1].message.entries().find("tool_calls"), {}, budget),
            R"([{"function": {"name": "f", "arguments": {"z": 1, "a": 2.5}}}])");
  EXPECT_FALSE(row.turns[3].message.is_dict());
  EXPECT_EQ(row.variables_json, R"({"tools":[{"type":"function"}],"enable_thinking":false})");
  EXPECT_EQ(row.answer, "d");
}

TEST_F(RowFiles, NullDoesNotTellMessagesApart) {
  const auto turn = [&](std::string_view message) {
    return read(concat(R"([{"messages": [)", message, R"(, {"role": "assistant", "content": "a"}]}])"),
                {.conversations = true})
        .rows.at(0)
        .turns.at(0);
  };
  for (const auto* message :
       {R"({"role": "user", "content": "q"})", R"({"role": "user", "content": "q", "name": null})",
        R"({"from": "human", "value": "q", "weight": null})"}) {
    EXPECT_EQ(turn(message).more, "") << message;
    EXPECT_FALSE(turn(message).message.is_dict()) << message;
  }
  const auto turned = turn(R"({"content": "q", "role": "user", "name": null})");
  EXPECT_EQ(turned.more, "");
  ASSERT_TRUE(turned.message.is_dict()) << "a template may print its keys in their order";
  EXPECT_EQ(turned.message.entries().entries.at(0).first.text(), "content");
  EXPECT_NE(turn(R"({"role": "user", "content": "q", "name": "Bob"})").more, "");
}

TEST_F(RowFiles, TheOutputIsFoundInTheContext) {
  const auto place = [&](std::string_view input, std::string_view output) {
    const Json row = {{"instruction", "Which?"}, {"input", input}, {"output", output}};
    return read(row.dump()).rows.at(0).answer_at;
  };
  EXPECT_EQ(place("a hundred are red, all", " red\n"), 14) << "as a word of its own";
  EXPECT_EQ(place("東京は日本の首都です。", "日本"), 9);
  EXPECT_EQ(place("a hundred", "red"), -1);
  EXPECT_EQ(place("", "red"), -1);
}

TEST_F(RowFiles, ReasoningHasTheNamesThatTemplatesRead) {
  const auto message = [&](std::string_view keys) {
    const auto rows = concat(R"([{"messages": [{"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", )",
                             keys, "}]}]");
    return read(rows, {.conversations = true}).rows.at(0).turns.at(1).more;
  };
  EXPECT_EQ(message(R"("reasoning": "R")"),
            R"({"thinking":"R","role":"assistant","content":"a","reasoning":"R","reasoning_content":"R"})");
  EXPECT_EQ(message(R"("thinking": "T", "reasoning": "R", "reasoning_content": null)"),
            R"({"thinking":"T","role":"assistant","content":"a","reasoning":"R","reasoning_content":"T"})");
  EXPECT_EQ(message(R"("reasoning_content": "C", "thinking": "T")"),
            R"({"thinking":"T","role":"assistant","content":"a","reasoning_content":"C"})");
}

TEST_F(RowFiles, WholeNumbersBeyond64BitsAreRefused) {
  const auto rows = [](std::string_view number) {
    return concat(R"([{"id": 100000000000000000000, "messages": [{"role": "user", "content": "q", "n": )", number,
                  R"(}, {"role": "assistant", "content": "a"}]}])");
  };
  for (const std::string number :
       {"100000000000000000000", "-9223372036854775809", "9223372036854775808", "18446744073709551616"})
    says(refused(rows(number), {.conversations = true}),
         {"row 0: messages[0]", concat("the number ", number, " is beyond 64 bits")});
  for (const auto& [number, text] : std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"9223372036854775807", "9223372036854775807"},
           {"-9223372036854775808", "-9223372036854775808"},
           {"1e20", "1e+20"},
           {"0.50000000000000000000", "0.5"}}) {
    jinja::Budget budget;
    const auto row = read(rows(number), {.conversations = true}).rows.at(0);
    const auto* held = row.turns.at(0).message.entries().find("n");
    ASSERT_NE(held, nullptr);
    EXPECT_EQ(jinja::printed(*held, budget), text) << number;
  }
  says(refused(R"([{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
                   "tools": "[{\"n\": [true, null, {\"m\": 100000000000000000000}]}]"}])",
               {.conversations = true}),
       {"row 0: tools", "is beyond 64 bits"});
  const auto answered = [](std::string_view answer) {
    return concat(R"({"prompt": "a", "completion": "b", "answer": )", answer, "}");
  };
  EXPECT_EQ(read(answered("[7, 1e20]"), {.compared = true}).rows.at(0).references,
            (std::vector<std::string>{"b", "7", "1e+20"}));
  for (const char* answer : {"100000000000000000000", "[\"c\", 100000000000000000000]"})
    says(refused(answered(answer), {.compared = true}), {"rows.jsonl:1: answer has a whole number beyond 64 bits"});
}

TEST_F(RowFiles, WeightsMustBeZeroOrOne) {
  const auto rows = [&](std::string_view weight) {
    return concat(
        R"([{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": )", weight,
        R"(}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}])");
  };
  const auto row = read(rows("0"), {.conversations = true}).rows.at(0);
  EXPECT_FALSE(row.turns[1].is_target);
  EXPECT_TRUE(row.turns[3].is_target);
  says(refused(rows("0.5"), {.conversations = true}), {"messages[1].weight is 0.5, allowed: 0 (no loss) or 1"});
  says(
      refused(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}]})",
              {.conversations = true}),
      {"every answer has the weight 0"});
}

TEST_F(RowFiles, InvalidRowsAreSkippedAndCountedIfConfigured) {
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

TEST_F(RowFiles, AnswersMustBeAmongTheOptions) {
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

TEST_F(RowFiles, LabelsAreReadFromTheConfiguredKey) {
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

TEST_F(RowFiles, PatternsMatchEachFileOnceInOrderOfName) {
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

TEST_F(RowFiles, EachFileMayHaveAnotherFormat) {
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

/// Returns the question and answer of a row in any format.
std::string summary(const Row& row) {
  std::string text = concat(row.instruction, "|", row.input, "|", row.output);
  for (const auto& turn : row.turns) text += concat("|", turn.role, ":", turn.content, turn.is_target ? "" : "*");
  return text;
}

TEST_F(RowFiles, CommonFormatsAreRecognisedByTheirKeys) {
  const auto one = [&](std::string_view text, FileRows what = {}) { return summary(read(text, what).rows.at(0)); };
  const FileRows chat{.conversations = true}, texts{.texts = true};
  EXPECT_EQ(one(R"({"instruction": "Add.", "context": "1, 2", "response": "3", "category": "math"})"), "Add.|1, 2|3");
  constexpr std::string_view kShareGpt =
      R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "system": "s"})";
  EXPECT_EQ(one(kShareGpt), "s\n\na||b");
  EXPECT_EQ(one(kShareGpt, chat), "||b|system:s|user:a|assistant:b");
  EXPECT_EQ(one(R"({"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
            "a||b");
  constexpr std::string_view kTalk =
      R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                      {"role": "user", "content": "c"}],
          "completion": [{"role": "assistant", "content": "d"}]})";
  EXPECT_EQ(one(concat("[", kTalk, "]"), chat), "||d|user:a|assistant:b*|user:c|assistant:d");
  EXPECT_EQ(one(R"({"text": "all of it"})", texts), "||all of it");
  EXPECT_EQ(one(R"({"instruction": "c", "input": "i", "output": "d", "system": "s", "history": [["a", "b"]]})", chat),
            "||d|system:s|user:a|assistant:b|user:c\n\ni|assistant:d");
  EXPECT_EQ(one(R"({"instruction": "c", "input": "i", "output": "d", "system": "s", "history": []})"), "s\n\nc|i|d");
  EXPECT_EQ(
      summary(read("{\n \"data\": [\n {\"prompt\": \"a\", \"completion\": \"b\"}\n]}", {}, "rows.json").rows.at(0)),
      "a||b");
  EXPECT_EQ(one("{\"data\": [{\"prompt\": \"a\", \"completion\": \"b\"}]}\n"), "a||b");
  says(refused(R"({"text": "a"})"), {"rows.jsonl:1: a text asks nothing", "plain"});
  says(refused(R"({"text": "a"})", {.texts = true, .compared = true}), {"score = \"nll\""});
  says(refused(R"({"conversations": [{"from": "bing", "value": "a"}]})"),
       {"conversations[0].from is \"bing\", allowed: human"});
  says(refused(R"({"instruction": "c", "output": "d", "history": [["a", "b"]]})"), {"4 turns"});
  says(refused(
           R"([{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
              {"role": "assistant", "content": "b"}]}])",
           chat),
       {"messages[0].content[0].type is \"image_url\", allowed: text"});
}

TEST_F(RowFiles, ErrorsNameTheFormatOfUnsupportedFiles) {
  constexpr std::string_view kSays = "one JSON object per line; this one goes on over lines ";
  says(refused("{\n \"prompt\": \"a\",\n \"completion\": \"b\"\n}\n"),
       {concat("rows.jsonl:1: ", kSays, "1 to 4: "), "jq -c", "a list of rows into a .json file"});
  says(refused("{\n \"prompt\": \"a\"\n}\n{\n \"prompt\": \"b\"\n}\n"), {"rows.jsonl:1: ", kSays});
  says(refused("{\"data\": [\n {\"prompt\": \"a\", \"completion\": \"b\"}\n]}"), {"rows.jsonl:1: ", kSays, "1 to 3"});
  says(refused("{\"prompt\": \"a\", \"completion\": \"b\"}\n\n{\"prompt\": \"a\",\n\n\"completion\": \"b\"}\n"),
       {"rows.jsonl:3: ", kSays, "3 to 5"});
  says(refused("{\"prompt\": \"a}\", \"completion\": \"\\\"{[\"}\n{\"prompt\": \"a"),
       {"rows.jsonl:2: not valid JSON", "ends within"});
  says(refused("{\n}", {}, "rows.json"), {"rows.json: is one JSON object over several lines", "a list of rows"});
  says(refused("{\"data\": [{\"prompt\": \"a\"}]}"), {"rows.jsonl: row 0", "its keys (prompt)"});
}

TEST_F(RowFiles, RejectsAnEmptyAnswerIfTextIsCompared) {
  constexpr std::string_view kCall =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"function": {}}]}]})";
  EXPECT_EQ(read(kCall, {.conversations = true}).rows.at(0).answer, "");
  says(refused(kCall, {.conversations = true, .compared = true}), {"no text to compare", "score = \"nll\""});
}

TEST_F(RowFiles, AFileIsReadOnceUnderAllItsNames) {
  const auto a = file("a.jsonl", R"({"prompt": "a", "completion": "b"})");
  const auto dotted = (folder_.path() / "." / "a.jsonl").string(), link = (folder_.path() / "link.jsonl").string(),
             hard = (folder_.path() / "hard.jsonl").string(), copy = (folder_.path() / "copy.jsonl").string();
  std::filesystem::create_symlink("a.jsonl", link);
  std::filesystem::create_hard_link(a, hard);
  EXPECT_EQ(found_files(std::vector{a, dotted, link, hard}), std::vector{a});
  std::filesystem::copy_file(a, copy);
  const auto set = file_rows({.patterns = {link, copy}});
  EXPECT_EQ(set.rows.size(), 2u);
  says(set.note, {"copy.jsonl is a copy of ", "link.jsonl: its rows count twice"});
}

}  // namespace
}  // namespace evenkeel::data
