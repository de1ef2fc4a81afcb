#include "tokenizer/chat_template.h"

#include <optional>
#include <utility>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "tokenizer/tokenizer_folder.h"

namespace evenkeel::tokenizer {
namespace {

using SpecialTokens = ChatTemplate::SpecialTokens;

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

/// A JSON file of the folder; an empty object if the file does not exist.
struct Document {
  std::string origin;
  Json json = Json::object();

  Document(const fs::path& folder, const char* name) : origin((folder / name).string()) {
    if (path_exists(folder / name)) json = load_json(folder / name);
  }
  JsonView view() const { return {json, origin}; }
};

/// Returns the template, which is given as a text or in a list of {"name", "template"}.
std::optional<std::string> template_in(const JsonView& config) {
  const auto given = config.find("chat_template");
  if (!given || !given->json().is_array()) return given ? std::optional(given->string()) : std::nullopt;
  for (const auto& one : given->items())
    if (one.at("name").string() == "default") return one.at("template").string();
  given->refuse(": none of the templates is named default");
}

jinja::Value number_value(const OrderedJson& json, const std::string& place) {
  if (json.is_number_float()) return jinja::Value(jinja::Value::Held(json.get<double>()));
  const bool fits = !json.is_number_unsigned() || json.get<uint64_t>() <= uint64_t{INT64_MAX};
  EK_CHECK(fits, kData, place, ": the number ", json.get<uint64_t>(), " is beyond 64 bits");
  return jinja::Value::integer(json.get<int64_t>());
}

jinja::Value list_value(const OrderedJson& json, const std::string& place) {
  std::vector<jinja::Value> items;
  for (const auto& item : json) items.push_back(chat_value(item, place));
  return jinja::Value::list(std::move(items));
}

jinja::Value dict_value(const OrderedJson& json, const std::string& place) {
  std::vector<std::pair<std::string, jinja::Value>> entries;
  for (const auto& [key, value] : json.items()) entries.emplace_back(key, chat_value(value, place));
  return jinja::Value::dict(std::move(entries));
}

/// Replaces the variables that have the names of those in `more`.
void put(const ChatVariables& more, ChatVariables& variables) {
  for (const auto& one : more) {
    std::erase_if(variables, [&](const auto& other) { return other.first == one.first; });
    variables.push_back(one);
  }
}

}  // namespace

jinja::Value chat_message(std::string_view role, std::string_view content) {
  return jinja::Value::dict(
      {{"role", jinja::Value::string(std::string(role))}, {"content", jinja::Value::string(std::string(content))}});
}

jinja::Value chat_value(const OrderedJson& json, const std::string& place) {
  if (json.is_string()) return jinja::Value::string(json.get<std::string>());
  if (json.is_boolean()) return jinja::Value::boolean(json.get<bool>());
  if (json.is_number()) return number_value(json, place);
  if (json.is_array()) return list_value(json, place);
  return json.is_object() ? dict_value(json, place) : jinja::Value::none();
}

ChatTemplate::ChatTemplate(std::string_view source, std::string origin, SpecialTokens special)
    : origin_(std::move(origin)), source_(source), template_(source, origin_), special_(std::move(special)) {}

ChatTemplate ChatTemplate::of_model(const fs::path& folder) {
  const Document config(folder, kTokenizerConfig);
  auto special = special_tokens_of(folder);
  if (const auto file = folder / kTemplateFile; path_exists(file))
    return {read_file(file, jinja::Template::kMostBytes), file.string(), std::move(special)};
  const auto source = template_in(config.view());
  EK_CHECK(source.has_value(), kData, folder.string(), " has no chat template: neither ", kTemplateFile,
           " nor a chat_template in ", kTokenizerConfig,
           "; a file of your own is given by the key data.chat_template or the flag --chat-template");
  return {*source, config.origin + ": chat_template", std::move(special)};
}

ChatTemplate ChatTemplate::of_file(const fs::path& file, const fs::path& folder) {
  return {read_file(file, jinja::Template::kMostBytes), file.string(), special_tokens_of(folder)};
}

jinja::Rendered ChatTemplate::render(std::span<const jinja::Value> messages, bool add_generation_prompt,
                                     const ChatVariables& more) const {
  ChatVariables variables = {{"messages", jinja::Value::list({messages.begin(), messages.end()})},
                             {"tools", jinja::Value::none()},
                             {"documents", jinja::Value::none()},
                             {"add_generation_prompt", jinja::Value::boolean(add_generation_prompt)}};
  for (const auto& [name, token] : special_) variables.emplace_back(name, jinja::Value::string(token));
  if (date_)
    variables.emplace_back("strftime_now",
                           jinja::Value(jinja::Value::Held(jinja::Function{.name = "strftime_now", .date = &*date_})));
  put(more, variables);
  return template_.render(variables);
}

ChatTemplate::SpecialTokens special_tokens_of(const fs::path& folder) {
  SpecialTokens tokens;
  for (auto& [name, content] : TokenizerFolder(folder, TokenizerFolder::Purpose::kNames).named_tokens())
    tokens.emplace(name, content);
  return tokens;
}

}  // namespace evenkeel::tokenizer
