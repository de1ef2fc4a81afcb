#include "data/row_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "data/option_places.h"
#include "data/row_keys.h"
#include "data/text_metrics.h"

namespace evenkeel::data {
namespace {

constexpr std::string_view kWithTurns = "the template chat (data.template = \"chat\", --template chat)";

bool is_blank_text(std::string_view text) { return strip(text).empty(); }

const std::string& nonblank(const JsonView& text) {
  text.require(!is_blank_text(text.string()), " is empty");
  return text.string();
}

/// Returns where the row is in the table of keys.
RowLayout layout_of(const JsonView& row, RowFormat format) {
  switch (format) {
    case RowFormat::kAlpaca:
      return RowLayout::kAlpaca;
    case RowFormat::kDolly:
      return RowLayout::kDolly;
    case RowFormat::kMessages:
      return RowLayout::kMessages;
    case RowFormat::kShareGpt:
      return RowLayout::kShareGpt;
    case RowFormat::kPromptCompletion:
      return row.at("prompt").json().is_array() ? RowLayout::kPromptCompletionTurns : RowLayout::kPromptCompletion;
    case RowFormat::kText:
      return RowLayout::kText;
    case RowFormat::kAuto:
      break;
  }
  fail(kInternal, "a row is read in a format of its own");
}

// --- conversations ---

bool calls_tools(const Turn& turn) {
  if (!turn.message.is_dict()) return false;
  const auto& keys = turn.message.entries();
  const auto is_true = [&](std::string_view key) { return keys.find(key) != nullptr && keys.find(key)->truth(); };
  return is_true("tool_calls") || is_true("function_call");
}

/// \param messages  the source of the turns, for error messages
void check_answers(const JsonView& messages, std::span<const Turn> turns) {
  for (size_t i = 0; i < turns.size(); ++i)
    messages.require(turns[i].role != "assistant" || !is_blank_text(turns[i].content) || calls_tools(turns[i]), "[", i,
                     "] of the assistant is empty");
}

/// Checks a training conversation.
void check_conversation(const JsonView& messages, std::span<const Turn> turns) {
  const auto any = [&](const auto& is) { return std::any_of(turns.begin(), turns.end(), is); };
  messages.require(any([](const Turn& turn) { return turn.role == "user" && !is_blank_text(turn.content); }),
                   ": nothing is asked, no message is a user's");
  messages.require(turns.back().role == "assistant", ": the last message is of \"", shown(turns.back().role),
                   "\", expected one of the assistant");
  check_answers(messages, turns);
  messages.require(any([](const Turn& turn) { return turn.role == "assistant" && turn.is_target; }),
                   ": every answer has the weight 0, nothing is left to learn from");
}

/// Checks that a template without turns can render the roles.
void check_roles(const JsonView& messages, std::span<const Turn> turns) {
  for (size_t i = 0; i < turns.size(); ++i) {
    const auto& who = turns[i].role;
    messages.require(who == "user" || who == "assistant" || who == "system", "[", i, "].role is \"", shown(who),
                     "\", allowed: system, user, assistant; other roles go with ", kWithTurns);
    messages.require(i == 0 || who != "system", "[", i,
                     "].role is \"system\", allowed in front of all others, or with ", kWithTurns);
  }
}

/// Moves the question and answer of a conversation to instruction and output, for templates without turns.
void flatten(const JsonView& json, Row& row) {
  auto& turns = row.turns;
  const bool system = turns.front().role == "system";
  const size_t count = turns.size() - (system ? 1 : 0);
  EK_CHECK(count == 2 && turns[system].role == "user", kConfig, json.place(), ": a conversation of ", count,
           " turns, which ", kWithTurns, " writes; other templates write one question and its answer");
  row.instruction = blocks(system ? turns[0].content : "", turns[system].content);
  turns.clear();
}

/// Appends turns. Answers in a prompt are not targets.
void append_turns(std::vector<Turn> more, bool is_prompt, std::vector<Turn>& turns) {
  for (auto& turn : more) {
    turn.is_target = turn.is_target && !(is_prompt && turn.role == "assistant");
    turns.push_back(std::move(turn));
  }
}

/// Puts the system's text in front of a conversation, unless its first message is this text.
void add_system(const JsonView& system, std::vector<Turn>& turns) {
  if (turns.empty() || turns.front().role != "system")
    return void(turns.insert(turns.begin(), {"system", system.string()}));
  system.require(turns.front().content == system.string(), " says something else than the first message, which is of ",
                 "the system: a row has one of the two");
}

// --- options and answers ---

/// Returns the value of a key, unless it says nothing.
std::optional<JsonView> value_of(const JsonView& json, std::string_view key) {
  const auto value = json.find(key);
  return value && !says_nothing(value->json()) ? value : std::nullopt;
}

/// Returns an answer that is written as a text or a number.
std::string answer_text(const JsonView& answer) {
  return answer.json().is_number() ? answer.json().dump() : nonblank(answer);
}

std::vector<std::string> answer_texts(const JsonView& answer) {
  if (!answer.json().is_array()) return {answer_text(answer)};
  std::vector<std::string> texts;
  for (const auto& one : answer.items()) texts.push_back(answer_text(one));
  return texts;
}

/// Returns true if the predicate holds for an answer, or for one of a list of answers.
template <typename J, typename Is>
bool any_answer(const J& answer, const Is& is) {
  return answer.is_array() ? std::any_of(answer.begin(), answer.end(), is) : is(answer);
}

/// Rejects whole numbers beyond 64 bits: the row's view holds them rounded.
void check_is_exact(const SourceRow& source, const JsonView& answer) {
  const auto is_large = [](const Json& one) { return one.is_number_float() && std::abs(one.get<double>()) >= 0x1p63; };
  if (!any_answer(answer.json(), is_large)) return;
  const bool rounded = any_answer(source.in_order().at("answer"), [](const auto& one) { return one.is_binary(); });
  answer.require(!rounded, " has a whole number beyond 64 bits, allowed: texts, and smaller numbers");
}

/// Adds the texts under `answer` to the accepted answers of a row whose answers are compared.
void add_references(const SourceRow& source, Row& row) {
  const auto answer = value_of(source.view(), "answer");
  if (!answer) return;
  check_is_exact(source, *answer);
  for (auto& text : answer_texts(*answer))
    if (std::find(row.references.begin(), row.references.end(), text) == row.references.end())
      row.references.push_back(std::move(text));
}

/// Returns the row's own options, if it has any.
std::optional<JsonView> own_options(const JsonView& json) {
  const auto options = value_of(json, "options"), choices = value_of(json, "choices");
  if (options && choices)
    choices->require(choices->json() == options->json(), " says something else than options: a row has one of the two");
  return options ? options : choices;
}

void add_options(const JsonView& json, const std::vector<std::string>& otherwise, Row& row) {
  const auto own = own_options(json);
  row.options = own ? own->strings() : otherwise;
  json.require(!row.options.empty(), ": no options, neither in the row nor in data.files.options");
  for (auto& option : row.options) {
    json.require(!is_blank_text(option), ": one of its options is empty");
    option = strip(option);
  }
  const auto answer = value_of(json, "answer");
  row.answer = strip(answer ? nonblank(*answer) : row.answer);
  const bool allowed = std::find(row.options.begin(), row.options.end(), row.answer) != row.options.end();
  json.require(allowed, ": the answer \"", shown(row.answer), "\" is none of its options: ", shown(join(row.options)));
}

// --- rows ---

/// One row, and how it is read.
class RowParts {
 public:
  RowParts(const SourceRow& source, RowLayout layout, const FileRows& what)
      : source_(source), json_(source.view()), layout_(layout), what_(what) {}

  Row read() const {
    if (layout_ == RowLayout::kText) return of_text();
    auto row = keys_with(KeyUse::kTurns, layout_).empty() ? of_texts() : of_turns();
    read_variables(source_, message_keys(), row);
    return row;
  }

  /// Reads the messages, with the system's text.
  Row conversation() const {
    Row row;
    for (const auto use : {KeyUse::kPrompt, KeyUse::kTurns})
      for (const auto& key : keys_with(use, layout_))
        append_turns(read_turns(source_, key, message_keys()), use == KeyUse::kPrompt, row.turns);
    if (const auto system = only_value(json_, KeyUse::kSystem, layout_)) add_system(*system, row.turns);
    check_whole(row);
    return row;
  }

 private:
  MessageKeys message_keys() const { return what_.conversations ? MessageKeys::kAll : MessageKeys::kTextAlone; }
  std::string_view key_with(KeyUse use) const { return keys_with(use, layout_).front(); }

  /// Returns the text under the key of a use; empty if there is none.
  std::string text_of(KeyUse use) const {
    const auto value = only_value(json_, use, layout_);
    return value ? value->string() : std::string();
  }

  void check_whole(const Row& row) const {
    std::vector<std::string_view> parts{row.instruction, row.input, row.output};
    for (const auto& turn : row.turns) parts.push_back(turn.content);
    check_nothing_lost(json_, layout_, parts, what_.label_field);
  }

  Row of_text() const {
    Row row;
    row.answer = row.output = nonblank(json_.at("text"));
    check_nothing_lost(json_, layout_, std::array<std::string_view, 1>{row.output}, what_.label_field);
    json_.require(what_.texts, ": a text asks nothing, allowed: with the template plain (data.template = \"plain\", ",
                  "--template plain), which puts nothing around it");
    json_.require(!what_.compared, ": a text asks nothing, allowed: score = \"nll\", which tells how likely it is");
    return row;
  }

  Row of_turns() const { return finished(json_.at(key_with(KeyUse::kTurns)), conversation()); }

  Row finished(const JsonView& messages, Row row) const {
    check_conversation(messages, row.turns);
    row.answer = row.output = row.turns.back().content;
    if (what_.conversations) return row;
    check_roles(messages, row.turns);
    flatten(json_, row);
    return row;
  }

  /// Reads a question, its context and its answer, each a text.
  Row of_texts() const {
    Row row;
    const auto question = json_.at(key_with(KeyUse::kQuestion));
    row.instruction = question.string();
    row.input = text_of(KeyUse::kContext);
    question.require(!is_blank_text(row.instruction) || !is_blank_text(row.input), " is empty");
    row.answer = row.output = nonblank(json_.at(key_with(KeyUse::kAnswer)));
    const auto system = text_of(KeyUse::kSystem);
    const auto history = only_value(json_, KeyUse::kHistory, layout_);
    check_whole(row);
    if (history || (what_.conversations && !system.empty())) return of_history(system, history, std::move(row));
    row.instruction = blocks(system, row.instruction);
    return row;
  }

  /// Makes a conversation of the system's text, earlier pairs of question and answer, and the row's own.
  Row of_history(const std::string& system, const std::optional<JsonView>& history, Row last) const {
    Row row;
    if (!system.empty()) row.turns.push_back({"system", system});
    if (history)
      for (const auto& pair : history->items()) {
        pair.require(pair.list().size() == 2, " has ", pair.size(), " texts, expected a question and its answer");
        row.turns.push_back({"user", pair.at(0).string()});
        row.turns.push_back({"assistant", nonblank(pair.at(1))});
      }
    row.turns.push_back({"user", blocks(last.instruction, last.input)});
    row.turns.push_back({"assistant", last.output});
    return finished(json_, std::move(row));
  }

  const SourceRow& source_;
  const JsonView& json_;
  RowLayout layout_;
  const FileRows& what_;
};

/// Returns the byte of the context where the output begins, without the blanks around it and as words of its own; -1:
/// it is not in the context.
int64_t begin_of_output(const Row& row) {
  if (row.input.empty()) return -1;
  const auto place = first_option(std::array{strip(row.output)}, row.input);
  return place ? static_cast<int64_t>(place->at) : -1;
}

std::string label_in(const JsonView& json, const FileRows& what) {
  if (what.label_field.empty() || !what.labelled) return what.label;
  const auto label = json.at(what.label_field);
  return label.json().is_string() ? label.string() : std::to_string(label.integer());
}

/// Returns the first format of which `has` has all keys.
template <typename Has>
std::optional<RowFormat> format_with(const Has& has) {
  if (has("messages")) return RowFormat::kMessages;
  if (has("conversations")) return RowFormat::kShareGpt;
  if (has("prompt") && has("completion")) return RowFormat::kPromptCompletion;
  if (has("instruction") && has("output")) return RowFormat::kAlpaca;
  if (has("instruction") && has("response")) return RowFormat::kDolly;
  return has("text") ? std::optional(RowFormat::kText) : std::nullopt;
}

}  // namespace

RowFormat format_of(const JsonView& row) {
  // A key without a value counts where no format has all its values.
  const auto has_value = [&](std::string_view key) { return value_of(row, key).has_value(); };
  if (const auto format = format_with(has_value)) return *format;
  if (const auto format = format_with([&](std::string_view key) { return row.has(key); })) return *format;
  std::vector<std::string> keys;
  for (const auto& member : row.members()) keys.push_back(shown(member.key()));
  row.refuse(": its keys (", join(keys),
             ") are of no format, allowed: instruction and output (alpaca), instruction and ",
             "response (dolly), messages, conversations (sharegpt), prompt and completion, text; to rename keys: ",
             "python3 -m evenkeel_moe rows IN OUT.jsonl --columns prompt=KEY,completion=KEY (in Python: columns)");
}

Row RowReader::read_conversation(const SourceRow& source, RowFormat format) const {
  const auto& json = source.view();
  const auto layout = layout_of(json, format);
  json.require(!keys_with(KeyUse::kTurns, layout).empty(),
               ": a row without messages, allowed: messages, conversations, ",
               "or prompt and completion that are lists of messages");
  auto row = RowParts(source, layout, what_).conversation();
  read_variables(source, MessageKeys::kAll, row);
  return row;
}

Row RowReader::read(const SourceRow& source, RowFormat format) const {
  const auto& json = source.view();
  Row row = RowParts(source, layout_of(json, format), what_).read();
  row.references = {row.answer};
  row.answer_at = begin_of_output(row);
  json.require(!what_.compared || !is_blank_text(row.answer),
               ": its answer has no text to compare with; score = \"nll\" asks how likely it is");
  if (what_.choices)
    add_options(json, what_.options, row);
  else if (what_.compared)
    add_references(source, row);
  row.label = label_in(json, what_);
  row.is_required = what_.strict;
  row.origin = json.place();
  return row;
}

}  // namespace evenkeel::data
