#include "tokenizer/chat_template.h"

#include <optional>
#include <utility>

#include "base/files.h"
#include "base/json.h"
#include "tokenizer/tokenizer_folder.h"

namespace evenkeel {
namespace {

using SpecialTokens = ChatTemplate::SpecialTokens;

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

/// A JSON object of the folder; an empty one where the file is not there.
struct Document {
  std::string origin;
  Json json = Json::object();

  Document(const fs::path& folder, const char* name) : origin((folder / name).string()) {
    if (path_exists(folder / name)) json = load_json(folder / name);
  }
  JsonView view() const { return {json, origin}; }
};

/// A text, or a list of {"name", "template"}.
std::optional<std::string> template_in(const JsonView& config) {
  const auto given = config.find("chat_template");
  if (!given || !given->json().is_array()) return given ? std::optional(given->string()) : std::nullopt;
  for (const auto& one : given->items())
    if (one.at("name").string() == "default") return one.at("template").string();
  given->refuse(": none of the templates is named default");
}

jinja::Value messages_value(std::span<const ChatMessage> messages) {
  std::vector<jinja::Value> list;
  for (const auto& [role, content] : messages)
    list.push_back(jinja::Value::dict(
        {{"role", jinja::Value::string(std::string(role))}, {"content", jinja::Value::string(std::string(content))}}));
  return jinja::Value::list(std::move(list));
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string origin, SpecialTokens special)
    : origin_(std::move(origin)), template_(source, origin_), special_(std::move(special)) {}

ChatTemplate ChatTemplate::of_model(const fs::path& folder) {
  const Document config(folder, kTokenizerConfig);
  auto special = special_tokens_of(folder);
  if (const auto file = folder / kTemplateFile; path_exists(file))
    return {read_file(file, jinja::Template::kMostBytes), file.string(), std::move(special)};
  const auto source = template_in(config.view());
  EK_CHECK(source.has_value(), kData, folder.string(), " has no chat template: neither ", kTemplateFile,
           " nor a chat_template in ", kTokenizerConfig, "; template = \"chat\" needs one");
  return {*source, config.origin + ": chat_template", std::move(special)};
}

jinja::Rendered ChatTemplate::render(std::span<const ChatMessage> messages, bool add_generation_prompt) const {
  std::vector<std::pair<std::string, jinja::Value>> variables = {
      {"messages", messages_value(messages)},
      {"tools", jinja::Value::none()},
      {"documents", jinja::Value::none()},
      {"add_generation_prompt", jinja::Value::boolean(add_generation_prompt)}};
  for (const auto& [name, token] : special_) variables.emplace_back(name, jinja::Value::string(token));
  return template_.render(variables);
}

ChatTemplate::SpecialTokens special_tokens_of(const fs::path& folder) {
  SpecialTokens tokens;
  for (auto& [name, content] : TokenizerFolder(folder, TokenizerFolder::Purpose::kNames).named_tokens())
    tokens.emplace(name, content);
  return tokens;
}

std::vector<fs::path> chat_template_files(const fs::path& folder) {
  const auto file = folder / kTemplateFile;
  return path_exists(file) ? std::vector{file} : std::vector<fs::path>();
}

}  // namespace evenkeel
