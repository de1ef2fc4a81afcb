// Checks which of several chat templates a conversation uses.
#include <gtest/gtest.h>

#include <array>

#include "base/testing.h"
#include "tokenizer/chat_template.h"

namespace evenkeel::tokenizer {
namespace {

const ChatVariables kNoTools = {{"tools", jinja::Value::none()}, {"documents", jinja::Value::list({})}};
const ChatVariables kEmptyTools = {{"tools", jinja::Value::list({})}};

std::string text_with(const ChatTemplates& templates, const ChatVariables& variables) {
  return templates.of(variables).render(std::array{chat_message("user", "q?")}, false, variables).text;
}

class NamedTemplates : public ::testing::Test {
 protected:
  void write(const std::string& name, std::string_view text) const {
    make_folders((folder_.path() / name).parent_path());
    write_file_atomic(folder_.path() / name, text);
  }
  ChatTemplates read() const { return ChatTemplates::of_model(folder_.path()); }
  std::string refused() const {
    return testing::refusal([&] { text_with(read(), {}); });
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(NamedTemplates, ToolsDecideEvenIfThereAreNone) {
  write("tokenizer_config.json", R"({"chat_template": {"default": "D {{ messages[0].content }}", "tool_use": "T"}})");
  EXPECT_EQ(text_with(read(), {}), "D q?");
  EXPECT_EQ(text_with(read(), kNoTools), "D q?");
  EXPECT_EQ(text_with(read(), kEmptyTools), "T");
}

TEST_F(NamedTemplates, FilesReplaceAllTemplatesOfTheConfig) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "D"}]})");
  EXPECT_EQ(text_with(read(), {}), "D");
  write("additional_chat_templates/tool_use.jinja", "T");
  EXPECT_EQ(text_with(read(), kEmptyTools), "T");
  EXPECT_NE(refused().find("(tool_use) none is named default"), std::string::npos) << refused();
  write("chat_template.jinja", "F");
  EXPECT_EQ(text_with(read(), {}), "F");
  EXPECT_EQ(chat_template_files(folder_.path()).size(), 2u);
}

TEST_F(NamedTemplates, AnInvalidTemplateForToolsIsRefusedWhereItIsUsed) {
  write("chat_template.jinja", "F");
  write("additional_chat_templates/tool_use.jinja", "{% include 'x' %}");
  EXPECT_EQ(text_with(read(), {}), "F");
  const auto refusal = testing::refusal([&] { text_with(read(), kEmptyTools); });
  EXPECT_NE(refusal.find("tool_use.jinja"), refusal.npos) << refusal;
}

TEST_F(NamedTemplates, TheSourceOfSeveralTemplatesIsReadAsAFile) {
  write("chat_template.jinja", "F");
  EXPECT_EQ(read().source(), "F");
  write("additional_chat_templates/tool_use.jinja", "T");
  const auto source = read().source();
  write("copy/chat_template.jinja", source);
  const auto copy = ChatTemplates::of_file(folder_.path() / "copy/chat_template.jinja", folder_.path());
  EXPECT_EQ(text_with(copy, {}), "F");
  EXPECT_EQ(text_with(copy, kEmptyTools), "T");
  EXPECT_EQ(copy.source(), source);
}

TEST_F(NamedTemplates, AFolderWithATemplateForProcessorsAloneHasNone) {
  write("chat_template.json", R"({"chat_template": "P"})");
  EXPECT_NE(refused().find("chat_template.json is for processors"), std::string::npos) << refused();
}

}  // namespace
}  // namespace evenkeel::tokenizer
