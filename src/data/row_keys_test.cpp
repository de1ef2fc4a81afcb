// Checks that no known key of a row is lost in any format: it is read, or the row is refused.
#include "data/row_keys.h"

#include <gtest/gtest.h>

#include <map>

#include "base/testing.h"
#include "data/row_files.h"

namespace evenkeel::data {
namespace {

/// A row of each layout that has no more than it needs.
const std::map<RowLayout, Json>& plain_rows() {
  const auto turn = [](const char* role, const char* text) { return Json{{"role", role}, {"content", text}}; };
  const Json user = Json::array({turn("user", "q?")}), assistant = Json::array({turn("assistant", "a")});
  const Json both = Json::array({turn("user", "q?"), turn("assistant", "a")});
  static const std::map<RowLayout, Json> rows = {
      {RowLayout::kAlpaca, {{"instruction", "q?"}, {"output", "a"}}},
      {RowLayout::kDolly, {{"instruction", "q?"}, {"response", "a"}}},
      {RowLayout::kPromptCompletion, {{"prompt", "q?"}, {"completion", "a"}}},
      {RowLayout::kPromptCompletionTurns, {{"prompt", user}, {"completion", assistant}}},
      {RowLayout::kMessages, {{"messages", both}}},
      {RowLayout::kShareGpt, {{"conversations", both}}},
      {RowLayout::kText, {{"text", "a whole text"}}}};
  return rows;
}

/// A value for each key that no other part of the row repeats.
Json value_of(std::string_view key) {
  const Json turns = Json::array({{{"role", "user"}, {"content", "x?"}}, {{"role", "assistant"}, {"content", "y"}}});
  if (key == "messages" || key == "conversations") return turns;
  if (key == "history") return Json::array({Json::array({"x?", "y"})});
  if (key == "tools" || key == "documents") return Json::array({{{"name", "x"}}});
  if (key == "chat_template_kwargs") return {{"x", 1}};
  if (key == "options" || key == "choices") return Json::array({"a", "x"});
  return key == "answer" ? "a" : "something else";
}

class RowKeys : public ::testing::Test {
 protected:
  TaskRows read(const Json& row, FileRows what = {}) const {
    const auto file = folder_.path() / "rows.jsonl";
    write_file_atomic(file, row.dump() + "\n");
    what.patterns = {file.string()};
    return file_rows(what);
  }
  std::string refused(const Json& row, const FileRows& what = {}) const {
    return testing::refusal([&] { read(row, what); });
  }

  /// Returns all that training and scoring see of a row.
  std::string seen(const Json& row, const FileRows& what) const {
    const auto one = read(row, what).rows.at(0);
    std::string text = concat(one.instruction, "|", one.input, "|", one.output, "|", one.variables_json, "|",
                              join(one.options), "|", join(one.references), "|", one.label);
    for (const auto& turn : one.turns) text += concat("|", turn.role, ":", turn.content);
    return text;
  }

  /// Returns how a row of the layout is read, whatever other keys it has.
  static FileRows everything(RowLayout layout) {
    static const std::map<RowLayout, RowFormat> formats = {
        {RowLayout::kAlpaca, RowFormat::kAlpaca},
        {RowLayout::kDolly, RowFormat::kDolly},
        {RowLayout::kPromptCompletion, RowFormat::kPromptCompletion},
        {RowLayout::kPromptCompletionTurns, RowFormat::kPromptCompletion},
        {RowLayout::kMessages, RowFormat::kMessages},
        {RowLayout::kShareGpt, RowFormat::kShareGpt},
        {RowLayout::kText, RowFormat::kText}};
    return {.format = formats.at(layout),
            .label_field = layout == RowLayout::kText ? "" : "label",
            .conversations = true,
            .texts = true};
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(RowKeys, EveryKnownKeyIsReadInEveryFormatOrTheRowIsRefusedByName) {
  for (const auto& [layout, plain] : plain_rows())
    for (const auto key : known_row_keys()) {
      if (plain.contains(key)) continue;
      auto row = plain;
      row["label"] = "l";
      FileRows what = everything(layout);
      const auto use = use_of(key, layout);
      if (use == KeyUse::kScore && (key == "options" || key == "choices")) what.choices = true;
      if (what.choices) what.options = {"a", "b"};
      if (use == KeyUse::kScore) what.compared = true;
      if (layout == RowLayout::kText) row.erase("label");
      const auto before = seen(row, what);
      row[std::string(key)] = key == "answer" && !what.choices ? Json("another") : value_of(key);
      const auto place = concat("layout ", static_cast<int>(layout), ", key ", key);
      if (use == KeyUse::kLost) {
        const auto refusal = refused(row, what);
        EXPECT_EQ(refusal.find("[data] "), 0u) << place << ": " << refusal;
        EXPECT_NE(refusal.find(concat("rows.jsonl:1: ", key, " would be lost")), refusal.npos) << place << refusal;
      } else {
        EXPECT_NE(seen(row, what), before) << place;
      }
    }
}

TEST_F(RowKeys, EmptyValuesSayNothing) {
  for (const auto& [layout, plain] : plain_rows())
    for (const auto key : known_row_keys())
      for (const auto& nothing : {Json(), Json(""), Json::array()}) {
        if (plain.contains(key) || (key == "chat_template_kwargs" && nothing.is_array())) continue;
        auto row = plain;
        row[std::string(key)] = nothing;
        EXPECT_EQ(refused(row, {.texts = true}), "no error") << key;
      }
}

TEST_F(RowKeys, EmptyValuesSayNothingOfChoices) {
  const FileRows what{.choices = true, .options = {"a", "b"}};
  const Json plain = {{"prompt", "q?"}, {"completion", "a"}};
  for (const auto& nothing : {Json(), Json(""), Json::array(), Json::object()})
    for (const char* key : {"options", "choices", "answer"}) {
      auto row = plain;
      row[key] = nothing;
      EXPECT_EQ(seen(row, what), seen(plain, what)) << row.dump();
      row["options"] = key == std::string_view("options") ? nothing : Json::array({"x", "a"});
      if (key == std::string_view("options")) row["choices"] = Json::array({"x", "a"});
      EXPECT_EQ(read(row, what).rows.at(0).options, (std::vector<std::string>{"x", "a"})) << row.dump();
    }
  auto none = plain;
  none["options"] = Json::array();
  EXPECT_NE(refused(none, {.choices = true}).find("no options"), std::string::npos);
  none["answer"] = " ";
  EXPECT_NE(refused(none, what).find("answer is empty"), std::string::npos);
}

TEST_F(RowKeys, AnEmptyTextOfTheSystemSaysNothing) {
  const auto turn = [](const char* role, const char* text) { return Json{{"role", role}, {"content", text}}; };
  const Json row = {{"messages", Json::array({turn("system", ""), turn("user", "q?"), turn("assistant", "a")})}};
  EXPECT_EQ(seen(row, {}), "q?||a|||a|");
  EXPECT_EQ(seen({{"prompt", "q?"}, {"completion", "a"}, {"system", ""}}, {}), "q?||a|||a|");
  const Json context = {{"instruction", ""}, {"input", "i"}, {"output", "a"}, {"system", "s"}};
  EXPECT_EQ(seen(context, {}), "s|i|a|||a|");
}

TEST_F(RowKeys, AContextIsReadUnderBothOfItsNames) {
  const auto with = [&](const char* context, const char* answer) {
    return seen({{"instruction", "Which colour?"}, {context, "The sky is blue."}, {answer, "blue"}}, {});
  };
  const auto expected = with("input", "output");
  EXPECT_EQ(expected, "Which colour?|The sky is blue.|blue|||blue|");
  for (const char* context : {"input", "context"})
    for (const char* answer : {"output", "response"}) EXPECT_EQ(with(context, answer), expected);
  EXPECT_EQ(seen({{"prompt", "Which colour?"}, {"context", "The sky is blue."}, {"completion", "blue"}}, {}), expected);
  const Json both = {{"instruction", "q"}, {"input", "one"}, {"context", "two"}, {"output", "a"}};
  EXPECT_NE(refused(both).find("context says something else than input"), std::string::npos) << refused(both);
}

TEST_F(RowKeys, SystemAndHistoryAreReadInEveryFormatOfTexts) {
  for (const auto layout : {RowLayout::kAlpaca, RowLayout::kDolly, RowLayout::kPromptCompletion}) {
    auto row = plain_rows().at(layout);
    row["system"] = "s";
    EXPECT_EQ(seen(row, {}), "s\n\nq?||a|||a|");
    row["history"] = Json::array({Json::array({"x?", "y"})});
    EXPECT_EQ(seen(row, {.conversations = true}), "||a|||a||system:s|user:x?|assistant:y|user:q?|assistant:a");
    EXPECT_NE(refused(row).find("4 turns"), std::string::npos) << refused(row);
    row["history"] = Json::array({Json::array({"x?"})});
    EXPECT_NE(refused(row).find("history[0] has 1 texts"), std::string::npos) << refused(row);
  }
}

TEST_F(RowKeys, ASystemTextIsGivenOnce) {
  const Json turns = Json::array({{{"role", "system"}, {"content", "s"}},
                                  {{"role", "user"}, {"content", "q?"}},
                                  {{"role", "assistant"}, {"content", "a"}}});
  for (const char* key : {"messages", "conversations"}) {
    EXPECT_EQ(seen({{key, turns}, {"system", "s"}}, {.conversations = true}), "||a|||a||system:s|user:q?|assistant:a");
    const auto refusal = refused({{key, turns}, {"system", "other"}});
    EXPECT_NE(refusal.find("system says something else than the first message"), refusal.npos) << refusal;
  }
}

TEST_F(RowKeys, KeysThatDifferInCaseOrSpacesAreRefused) {
  for (const char* key : {"Input", "INPUT", " input", "Context", "System", "chat-template-kwargs", "System Prompt"}) {
    const auto refusal = refused({{"instruction", "q?"}, {"output", "a"}, {key, "lost"}});
    EXPECT_NE(refusal.find("would be lost"), refusal.npos) << key << ": " << refusal;
  }
  EXPECT_EQ(refused({{"instruction", "q?"}, {"output", "a"}, {"Input", ""}, {"ID", "7"}, {"Label", "x"}}), "no error");
}

TEST_F(RowKeys, AValueThatRepeatsWhatIsReadIsNotLost) {
  const std::string whole = "Below is a question.\n### q? ###\n with i\n### a";
  EXPECT_EQ(refused({{"instruction", "q?"}, {"input", "with i"}, {"output", "a"}, {"text", whole}}), "no error");
  const Json turns = Json::array({{{"role", "user"}, {"content", "q?"}}, {{"role", "assistant"}, {"content", "a"}}});
  EXPECT_EQ(refused({{"messages", turns}, {"prompt", "q?\n"}, {"prompt_id", "7"}}), "no error");
  EXPECT_NE(refused({{"messages", turns}, {"prompt", "q? and more"}}), "no error");
  EXPECT_NE(refused({{"instruction", "q?"}, {"input", "lost"}, {"output", "a"}, {"text", "q? a"}}), "no error");
}

TEST_F(RowKeys, ALabelIsAGroupButNotAnOpinionOfTheAnswer) {
  const Json row = {{"prompt", "q?"}, {"completion", "a"}, {"label", "north"}};
  EXPECT_EQ(refused(row), "no error");
  EXPECT_EQ(read(row, {.label_field = "label"}).rows.at(0).label, "north");
  const auto refusal = refused({{"prompt", "q?"}, {"completion", "a"}, {"label", false}});
  EXPECT_NE(refusal.find("label is false"), refusal.npos) << refusal;
  EXPECT_NE(refused({{"text", "good film"}, {"label", 1}}, {.texts = true}), "no error");
}

TEST_F(RowKeys, ATextUnderAnswerIsAcceptedToo) {
  const auto references = [&](const Json& answer) {
    return read({{"prompt", "q?"}, {"completion", "so it is 42"}, {"answer", answer}}, {.compared = true})
        .rows.at(0)
        .references;
  };
  EXPECT_EQ(references("42"), (std::vector<std::string>{"so it is 42", "42"}));
  EXPECT_EQ(references(42), (std::vector<std::string>{"so it is 42", "42"}));
  EXPECT_EQ(references(Json::array({"42", "so it is 42"})), (std::vector<std::string>{"so it is 42", "42"}));
  EXPECT_EQ(references(nullptr), std::vector<std::string>{"so it is 42"});
}

TEST_F(RowKeys, KeysCanBeIgnoredOnPurpose) {
  const Json row = {{"prompt", "q?"}, {"completion", "a"}, {"system", "s"}, {"question", "x"}};
  EXPECT_NE(refused(row), "no error");
  EXPECT_EQ(seen(row, {.ignore = {"question", "system"}}), "q?||a|||a|");
}

TEST_F(RowKeys, ALineForGenerationHasAPromptAndNothingMoreOfAQuestion) {
  const auto said = [](const Json& line) {
    return testing::refusal([&] { check_prompt_alone(JsonView(line, "line 1")); });
  };
  EXPECT_EQ(said({{"prompt", "q?"}, {"completion", "a"}, {"label", "x"}, {"id", 3}, {"tools", nullptr}}), "no error");
  for (const char* key : {"system", "input", "context", "history", "tools", "documents", "System"})
    EXPECT_NE(said({{"prompt", "q?"}, {key, "x"}}).find(concat("line 1: ", key, " would be lost")), std::string::npos);
}

TEST_F(RowKeys, EmptyToolsReachAChatTemplate) {
  const Json turns = Json::array({{{"role", "user"}, {"content", "q?"}}, {{"role", "assistant"}, {"content", "a"}}});
  const auto variables = [&](const Json& tools) {
    return read({{"messages", turns}, {"tools", tools}}, {.conversations = true}).rows.at(0).variables_json;
  };
  EXPECT_EQ(variables(Json::array()), R"({"tools":[]})");
  EXPECT_EQ(variables("[]"), R"({"tools":[]})");
  EXPECT_EQ(variables(nullptr), "");
  EXPECT_EQ(variables(""), "");
  EXPECT_EQ(read({{"prompt", "q?"}, {"completion", "a"}, {"tools", Json::array({1})}}, {.conversations = true})
                .rows.at(0)
                .variables_json,
            R"({"tools":[1]})");
}

}  // namespace
}  // namespace evenkeel::data
