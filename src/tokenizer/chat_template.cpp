#include "tokenizer/chat_template.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/text.h"
#include "tokenizer/tokenizer_folder.h"

namespace evenkeel::tokenizer {
namespace {

using SpecialTokens = ChatTemplate::SpecialTokens;

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kTemplateFolder = "additional_chat_templates";
constexpr const char* kProcessorTemplate = "chat_template.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kDefault = "default";
constexpr const char* kToolUse = "tool_use";

[[noreturn]] void refuse_number(const std::string& place, std::string_view digits) {
  fail(kData, place, ": the number ", shown(digits), " is beyond 64 bits");
}

jinja::Value number_value(const OrderedJson& json, const std::string& place) {
  if (json.is_number_float()) return jinja::Value(jinja::Value::Held(json.get<double>()));
  const bool fits = !json.is_number_unsigned() || json.get<uint64_t>() <= uint64_t{INT64_MAX};
  if (!fits) refuse_number(place, json.dump());
  return jinja::Value::integer(json.get<int64_t>());
}

/// Builds the value of a JSON text that is valid.
class ChatJsonReader : public nlohmann::json_sax<OrderedJson> {
 public:
  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(int64_t value) override { return put(value); }
  bool number_unsigned(uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string& digits) override {
    if (digits.find_first_of(".eE") != digits.npos) return put(value);
    return put(OrderedJson::binary(std::vector<uint8_t>(digits.begin(), digits.end())));
  }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(OrderedJson::binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*size*/) override { return open(OrderedJson::object()); }
  bool key(std::string& key) override {
    key_ = std::move(key);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t /*size*/) override { return open(OrderedJson::array()); }
  bool end_array() override { return close(); }
  bool parse_error(size_t /*at*/, const std::string& /*token*/, const OrderedJson::exception& /*error*/) override {
    return false;
  }

  OrderedJson whole;

 private:
  OrderedJson& place() {
    if (open_.empty()) return whole;
    return open_.back()->is_object() ? (*open_.back())[key_] : open_.back()->emplace_back();
  }
  bool put(OrderedJson value) {
    place() = std::move(value);
    return true;
  }
  bool open(OrderedJson value) {
    auto& at = place();
    at = std::move(value);
    open_.push_back(&at);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<OrderedJson*> open_;
  std::string key_;
};

/// Returns true if the text may have a whole number beyond 64 bits, which has 19 digits or more.
bool has_long_number(std::string_view text) {
  size_t digits = 0;
  for (const char c : text) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits == 19) return true;
  }
  return false;
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

OrderedJson chat_json(std::string_view text, const std::string& place) {
  auto json = parse_json<OrderedJson>(text, place);
  if (!has_long_number(text)) return json;
  ChatJsonReader reader;
  const bool read = OrderedJson::sax_parse(text.begin(), text.end(), &reader);
  EK_CHECK(read, kInternal, place, ": JSON that was parsed once is refused the second time");
  return std::move(reader.whole);
}

jinja::Value chat_value(const OrderedJson& json, const std::string& place) {
  if (json.is_string()) return jinja::Value::string(json.get<std::string>());
  if (json.is_boolean()) return jinja::Value::boolean(json.get<bool>());
  if (json.is_number()) return number_value(json, place);
  if (json.is_binary()) refuse_number(place, std::string(json.get_binary().begin(), json.get_binary().end()));
  if (json.is_array()) return list_value(json, place);
  return json.is_object() ? dict_value(json, place) : jinja::Value::none();
}

ChatTemplate::ChatTemplate(std::string_view source, std::string origin, SpecialTokens special)
    : origin_(std::move(origin)), source_(source), template_(source, origin_), special_(std::move(special)) {}

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

namespace {

std::string template_text(const fs::path& file) { return read_file(file, jinja::Template::kMostBytes); }

/// Returns the files additional_chat_templates/*.jinja by name.
std::vector<fs::path> additional_files(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!is_folder(folder / kTemplateFolder)) return files;
  for (const auto& file : entries_of(folder / kTemplateFolder))
    if (file.extension() == ".jinja" && is_file(file)) files.push_back(file);
  return files;
}

/// Returns true if the variables hold tools, which may be none in number but not the value none.
bool has_tools(const ChatVariables& variables) {
  return std::any_of(variables.begin(), variables.end(), [](const ChatVariables::value_type& one) {
    return one.first == "tools" && !one.second.is<jinja::None>();
  });
}

}  // namespace

std::vector<ChatTemplates::Source> ChatTemplates::in_files(const fs::path& folder) {
  std::vector<Source> sources;
  if (const auto file = folder / kTemplateFile; path_exists(file))
    sources.push_back({kDefault, template_text(file), file.string()});
  for (const auto& file : additional_files(folder))
    sources.push_back({file.stem().string(), template_text(file), file.string()});
  return sources;
}

/// Reads one template, a list of named ones or an object of names.
std::vector<ChatTemplates::Source> ChatTemplates::in_json(const JsonView& json) {
  if (json.json().is_string()) return {{kDefault, json.string(), json.place()}};
  std::vector<Source> sources;
  if (json.json().is_object()) {
    for (const auto& one : json.members()) sources.push_back({one.key(), one.string(), one.place()});
    return sources;
  }
  for (const auto& one : json.items())
    sources.push_back({one.at("name").string(), one.at("template").string(), one.place()});
  return sources;
}

std::vector<ChatTemplates::Source> ChatTemplates::in_config(const fs::path& folder) {
  const auto file = folder / kTokenizerConfig;
  if (!path_exists(file)) return {};
  const Json json = load_json(file);
  const auto given = JsonView(json, file.string()).find("chat_template");
  return given ? in_json(*given) : std::vector<Source>();
}

ChatTemplates ChatTemplates::of_model(const fs::path& folder) {
  auto sources = in_files(folder);
  if (sources.empty()) sources = in_config(folder);
  EK_CHECK(
      !sources.empty(), kData, folder.string(), " has no chat template: neither ", kTemplateFile,
      " nor a chat_template in ", kTokenizerConfig,
      path_exists(folder / kProcessorTemplate) ? " (chat_template.json is for processors, not for tokenizers)" : "",
      "; a file of your own is given by the key data.chat_template or the flag --chat-template");
  return {std::move(sources), folder.string(), special_tokens_of(folder)};
}

ChatTemplates ChatTemplates::of_file(const fs::path& file, const fs::path& folder) {
  const auto text = template_text(file);
  const Json several = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  auto sources = several.is_object() ? in_json(JsonView(several, file.string()))
                                     : std::vector<Source>{{kDefault, text, file.string()}};
  return {std::move(sources), file.string(), special_tokens_of(folder)};
}

ChatTemplates::ChatTemplates(std::vector<Source> sources, std::string origin, SpecialTokens special)
    : origin_(std::move(origin)), special_(std::move(special)) {
  OrderedJson texts = OrderedJson::object();
  // Of two templates of one name the later counts, as in transformers.
  for (const auto& [name, text, place] : sources) {
    if (!texts.contains(name)) names_.push_back(name);
    texts[name] = text;
    if (name == kDefault) default_.emplace(text, place, special_);
    if (name == kToolUse) try {
        tool_use_fault_.reset();
        tool_use_.emplace(text, place, special_);
      } catch (const Error& error) {
        tool_use_fault_ = error;
      }
  }
  source_ = names_ == std::vector<std::string>{kDefault} ? texts[kDefault].get<std::string>() : texts.dump();
}

bool ChatTemplates::uses_tool_use(const ChatVariables& variables) const {
  return has_tool_use() && has_tools(variables);
}

const ChatTemplate& ChatTemplates::of(const ChatVariables& variables) const {
  if (uses_tool_use(variables)) {
    if (tool_use_fault_) throw *tool_use_fault_;
    return *tool_use_;
  }
  EK_CHECK(default_.has_value(), kData, origin_, ": of its chat templates (", join(names_),
           ") none is named default; write one of them into a file, and name it: data.chat_template, --chat-template");
  return *default_;
}

void ChatTemplates::use_date(const jinja::Date& date) {
  for (auto* one : {&default_, &tool_use_})
    if (*one) (*one)->use_date(date);
}

std::vector<fs::path> chat_template_files(const fs::path& folder) {
  auto files = additional_files(folder);
  if (const auto file = folder / kTemplateFile; path_exists(file)) files.insert(files.begin(), file);
  return files;
}

}  // namespace evenkeel::tokenizer
