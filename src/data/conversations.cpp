#include "data/conversations.h"

#include <algorithm>
#include <array>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "tokenizer/chat_template.h"

namespace evenkeel::data {
namespace {

constexpr std::string_view kChatRemedy = ", which the template chat writes (data.template = \"chat\", --template chat)";

size_t most_keys(const Json& json) {
  size_t most = json.is_object() ? json.size() : 0;
  if (json.is_structured())
    for (const auto& item : json) most = std::max(most, most_keys(item));
  return most;
}

/// Translates ShareGPT's names of roles to OpenAI's.
std::string role_of(const JsonView& from) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kSpeakers = {{{"human", "user"},
                                                                                       {"user", "user"},
                                                                                       {"gpt", "assistant"},
                                                                                       {"assistant", "assistant"},
                                                                                       {"chatgpt", "assistant"},
                                                                                       {"model", "assistant"},
                                                                                       {"system", "system"},
                                                                                       {"observation", "tool"},
                                                                                       {"tool", "tool"}}};
  std::vector<std::string_view> allowed;
  for (const auto& [name, role] : kSpeakers) {
    if (from.string() == name) return std::string(role);
    allowed.push_back(name);
  }
  from.refuse(" is \"", shown(from.string()), "\", allowed: ", join(allowed));
}

/// Returns the text of one part of a content that is a list.
const std::string& part_text(const JsonView& part) {
  const auto type = part.at("type");
  type.require(type.string() == "text", " is \"", shown(type.string()),
               "\", allowed: text (no image, audio or video is read)");
  return part.at("text").string();
}

std::string content_text(const JsonView& content, MessageKeys keys) {
  if (!content.json().is_array()) return content.string();
  const auto parts = content.items();
  content.require(keys == MessageKeys::kAll || parts.size() == 1, " has ", parts.size(), " parts", kChatRemedy);
  std::string text;
  for (const auto& part : parts) text += part_text(part);
  return text;
}

/// Gives reasoning both names that templates read, as transformers 5 does: reasoning_content, and `thinking` where the
/// message has none. REQUIRES a message without null.
OrderedJson with_reasoning(OrderedJson message) {
  constexpr std::array<const char*, 3> kNames = {"reasoning_content", "thinking", "reasoning"};
  const auto* const name =
      std::find_if(kNames.begin(), kNames.end(), [&](const char* one) { return message.contains(one); });
  if (name == kNames.end()) return message;
  const OrderedJson reasoning = message[*name];
  OrderedJson named = OrderedJson::object();
  named["thinking"] = reasoning;
  named.update(message);
  named["reasoning_content"] = reasoning;
  return named;
}

/// Returns true if a message says no more than role and text of its turn. \param message  MessageReader::all_keys()
bool is_role_and_text(const OrderedJson& message, const Turn& turn) {
  return message.size() == 2 && message.contains("content") && message["content"] == turn.content;
}

/// Reads one message.
class MessageReader {
 public:
  MessageReader(const JsonView& message, MessageKeys keys) : message_(message), keys_(keys) {
    from_ = !message.has("role") && message.has("from");
  }

  Turn read() const {
    const auto role = message_.at(from_ ? "from" : "role");
    Turn turn{from_ ? role_of(role) : role.string(), {}};
    if (const auto content = message_.find(content_key()))
      turn.content = content_text(*content, keys_);
    else if (!calls_tools())
      message_.at(content_key()).string();  // throws if the text is missing or is no string
    turn.is_target = weight_of(turn) != 0;
    if (keys_ == MessageKeys::kTextAlone) refuse_what_is_lost();
    return turn;
  }

  /// Returns true if the message has only a role and a text.
  bool is_plain() const {
    const auto& json = message_.json();
    return json.size() == 2 && json.contains(content_key()) && json[content_key()].is_string();
  }

  /// Returns all keys that are not null, with ShareGPT's names replaced by OpenAI's and with_reasoning(). Tables fill
  /// keys that only some messages have with null, which transformers 5 leaves out.
  OrderedJson all_keys(const OrderedJson& message, const std::string& role) const {
    OrderedJson renamed = OrderedJson::object();
    for (const auto& [key, value] : message.items()) {
      if (value.is_null()) continue;
      if (from_ && (key == "from" || key == "value"))
        renamed[key == "from" ? "role" : "content"] = key == "from" ? OrderedJson(role) : value;
      else
        renamed[key] = value;
    }
    return with_reasoning(std::move(renamed));
  }

 private:
  std::string content_key() const { return from_ ? "value" : "content"; }
  bool calls_tools() const { return message_.has("tool_calls") || message_.has("function_call"); }

  int64_t weight_of(const Turn& turn) const {
    const auto weight = message_.find("weight");
    if (!weight) return 1;
    const auto value = weight->json();
    weight->require(value == 0 || value == 1, " is ", shown(value), ", allowed: 0 (no loss) or 1");
    weight->require(value == 0 || turn.role == "assistant",
                    " is 1, allowed: 0, as the loss is on the assistant's turns");
    return value == 0 ? 0 : 1;
  }

  void refuse_what_is_lost() const {
    constexpr std::array<std::string_view, 5> kWritten = {"role", "content", "from", "value", "weight"};
    for (const auto& member : message_.members())
      member.require(
          member.json().is_null() || std::find(kWritten.begin(), kWritten.end(), member.key()) != kWritten.end(),
          " would be lost: it is a key of a message", kChatRemedy);
  }

  const JsonView& message_;
  MessageKeys keys_;
  bool from_ = false;
};

/// Adds the keys of a message to its turn, unless they say no more than its role and text.
void add_keys(const OrderedJson& message, const std::string& place, Turn& turn) {
  const bool says_more = !is_role_and_text(message, turn);
  if (says_more) turn.more = message.dump();
  // A template may print the keys in their order, which is that of chat_message() only if the role is first.
  if (says_more || message.begin().key() != "role") turn.message = tokenizer::chat_value(message, place);
}

void add_variable(const std::string& name, const OrderedJson& value, const std::string& place, OrderedJson& all,
                  Row& into) {
  if (value.is_null()) return;
  all[name] = value;
  into.variables.emplace_back(name, tokenizer::chat_value(value, place));
}

/// Rejects names of variables that the conversation itself defines.
void check_name(const JsonView& variable) {
  const auto& name = variable.key();
  variable.require(name != "messages" && name != "add_generation_prompt", " is given by the row itself");
  variable.require(name != "chat_template" && name != "continue_final_message" && name != "sanitize_control_tokens",
                   " is no variable of a template but an option of apply_chat_template, which is not supported");
}

}  // namespace

const OrderedJson& SourceRow::in_order() const {
  if (ordered_) return *ordered_;
  const size_t most = most_keys(view_.json());
  view_.require(most <= kMostKeys, ": an object of ", most, " keys, allowed in a conversation: up to ", kMostKeys);
  return ordered_.emplace(read_in_order_());
}

std::vector<Turn> read_turns(const SourceRow& row, std::string_view key, MessageKeys keys) {
  std::vector<Turn> turns;
  for (const auto& message : row.view().at(key).items()) {
    message.object();
    const MessageReader reader(message, keys);
    auto turn = reader.read();
    if (!reader.is_plain())
      add_keys(reader.all_keys(row.in_order().at(std::string(key)).at(turns.size()), turn.role), message.place(), turn);
    turns.push_back(std::move(turn));
  }
  return turns;
}

void read_variables(const SourceRow& row, MessageKeys keys, Row& into) {
  const auto& view = row.view();
  OrderedJson all = OrderedJson::object();
  for (const char* name : {"tools", "documents", "chat_template_kwargs"}) {
    const auto given = view.find(name);
    if (!given || given->json() == "" || (given->json().empty() && keys == MessageKeys::kTextAlone)) continue;
    given->require(keys == MessageKeys::kAll, " would be lost: it is for a template", kChatRemedy);
    auto value = row.in_order().at(name);
    if (given->json().is_string()) value = tokenizer::chat_json(given->string(), given->place());
    if (name == std::string_view("chat_template_kwargs")) {
      for (const auto& variable : given->members()) check_name(variable);
      for (const auto& [key, one] : value.items()) add_variable(key, one, given->place(), all, into);
    } else {
      given->require(value.is_array(), " is no list");
      add_variable(name, value, given->place(), all, into);
    }
  }
  if (!all.empty()) into.variables_json = all.dump();
}

}  // namespace evenkeel::data
