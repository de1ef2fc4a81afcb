#include "data/prompt.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "data/context_window.h"
#include "jinja/budget.h"

namespace evenkeel::data {
namespace {

constexpr std::string_view kTask =
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.";
constexpr std::string_view kTaskWithContext =
    "Below is an instruction that describes a task, paired with context that provides further information. "
    "Write a response that appropriately completes the request.";
constexpr std::string_view kTaskWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.";
// LLM-Adapters' prompts come from indented source code, so their models see this indentation.
constexpr std::string_view kIndent = "                ";

std::string paper_prompt(const Row& row) {
  if (row.input.empty()) return concat(kTask, "\n\n### Instruction:\n", row.instruction, "\n\n### Response:\n");
  return concat(kTaskWithContext, "\n\n### Instruction:\n", row.instruction, "\n\n### Context:\n", row.input,
                "\n\n### Response:\n");
}

/// \param after_request  the text after "request."  \param blank  the blank lines between the blocks
std::string llm_adapters_prompt(const Row& row, std::string_view after_request, std::string_view blank) {
  const auto block = [&](std::string_view title, std::string_view text) {
    return concat(kIndent, title, "\n", kIndent, text, "\n", blank, "\n");
  };
  std::string prompt = concat(row.input.empty() ? kTask : kTaskWithInput, after_request, "\n\n");
  prompt += block("### Instruction:", row.instruction);
  if (!row.input.empty()) prompt += block("### Input:", row.input);
  return prompt + concat(kIndent, "### Response:\n", kIndent);
}

/// Converts a conversation with one answer to instruction and output.
Row without_turns(const Row& row) {
  if (row.turns.empty()) return row;
  const auto& turns = row.turns;
  const bool system = turns.front().role == "system";
  const size_t user = system ? 1 : 0;
  EK_CHECK(turns.size() == user + 2 && turns[user].role == "user" && turns.back().role == "assistant", kData,
           "a conversation of ", turns.size(), " turns: one of several answers needs template = \"chat\"");
  Row flat = row;
  flat.turns.clear();
  flat.instruction = blocks(system ? turns[0].content : "", turns[user].content);
  flat.output = turns.back().content;
  return flat;
}

std::vector<Turn> turns_of(const Row& row) {
  if (!row.turns.empty()) return row.turns;
  return {{"user", blocks(row.instruction, row.input)}, {"assistant", row.output}};
}

/// Replaces the context of a row, if there is a new one. The position of the answer is then unknown.
std::optional<Row> with_context(Row row, std::optional<std::string> context) {
  if (!context) return std::nullopt;
  row.input = std::move(*context);
  row.answer_at = -1;
  return row;
}

std::string prompt_of(const Row& given, PromptTemplate form, bool training) {
  const auto row = without_turns(given);
  if (form == PromptTemplate::kPaper) return paper_prompt(row);
  if (form == PromptTemplate::kPlain) return blocks(row.instruction, row.input);
  EK_CHECK(form == PromptTemplate::kLlmAdapters, kInternal, "a chat template needs a tokenizer");
  return training ? llm_adapters_prompt(row, "  ", kIndent) : llm_adapters_prompt(row, " ", "");
}

std::vector<jinja::Value> messages_of(std::span<const Turn> turns) {
  std::vector<jinja::Value> messages;
  for (const auto& turn : turns)
    messages.push_back(turn.message.is_dict() ? turn.message : tokenizer::chat_message(turn.role, turn.content));
  return messages;
}

/// Returns true if a content of several parts was printed as a Python list: the template supports strings only.
bool prints_parts(const Turn& turn, const std::string& text) {
  const auto* content = turn.message.is_dict() ? turn.message.entries().find("content") : nullptr;
  if (content == nullptr || !content->is_list_or_tuple()) return false;
  try {
    jinja::Budget budget;
    return text.find(jinja::printed(*content, budget)) != text.npos;
  } catch (const Error&) {  // then the template cannot have written it either
    return false;
  }
}

/// Returns the dict with another text under a key.
jinja::Value with_text(const jinja::Value& dict, std::string_view key, const jinja::Value& text) {
  jinja::Budget budget;
  auto changed = dict.entries();
  changed.put(jinja::Value::string(std::string(key)), text, budget);
  return jinja::Value::dict_of(std::move(changed.entries));
}

/// Returns the turn with another text and all its other keys. Of a content of parts, the first is the new text.
Turn with_content(Turn turn, const std::string& content) {
  turn.content = content;
  if (!turn.message.is_dict()) return turn;
  const auto text = jinja::Value::string(content);
  const auto* const old = turn.message.entries().find("content");
  if (old == nullptr || !old->is_list_or_tuple() || old->items().empty() || !old->items()[0].is_dict()) {
    turn.message = with_text(turn.message, "content", text);
    return turn;
  }
  auto parts = old->items();
  parts[0] = with_text(parts[0], "text", text);
  turn.message = with_text(turn.message, "content", jinja::Value::list(std::move(parts)));
  return turn;
}

// Answers of which neither the first nor the last letters are equal.
constexpr std::array<std::string_view, 2> kTwoAnswers = {"first", "zwei"};

std::string_view common_prefix(std::string_view one, std::string_view other) {
  return one.substr(
      0, static_cast<size_t>(std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first - one.begin()));
}

std::string_view common_suffix(std::string_view one, std::string_view other) {
  const auto length = std::mismatch(one.rbegin(), one.rend(), other.rbegin(), other.rend()).first - one.rbegin();
  return one.substr(one.size() - static_cast<size_t>(length));
}

bool is_known_role(std::string_view role) { return role == "system" || role == "user" || role == "assistant"; }

std::string_view without_blanks_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);  // npos + 1 == 0
}

}  // namespace

std::string training_prompt(const Row& row, PromptTemplate form) { return prompt_of(row, form, /*training=*/true); }
std::string evaluation_prompt(const Row& row, PromptTemplate form) { return prompt_of(row, form, /*training=*/false); }

Prompts::Prompts(const tokenizer::Tokenizer& tokenizer, PromptTemplate form) : tokenizer_(&tokenizer), form_(form) {
  if (form != PromptTemplate::kChat) return;
  chat_ = std::make_shared<const tokenizer::ChatTemplates>(tokenizer.chat_templates());
  find_stops();
}

jinja::Rendered Prompts::rendered(std::span<const Turn> turns, bool add_generation_prompt,
                                  const tokenizer::ChatVariables& variables) const {
  const auto& chat = chat_->of(variables);
  auto result = chat.render(messages_of(turns), add_generation_prompt, variables);
  for (const auto& turn : turns)
    EK_CHECK(!prints_parts(turn, result.text), kData, chat.origin(),
             " writes a content of parts as a list: give it as one text");
  return result;
}

std::string Prompts::training_prompt(const Row& row) const {
  return chat_ ? evaluation_prompt(row) : data::training_prompt(row, form_);
}

std::string Prompts::evaluation_prompt(const Row& row) const {
  if (!chat_) return data::evaluation_prompt(row, form_);
  auto turns = turns_of(row);
  turns.pop_back();
  check_roles(turns, row.variables);
  return rendered(turns, /*add_generation_prompt=*/true, row.variables).text;
}

std::string Prompts::conversation_text(const Row& row, bool add_generation_prompt) const {
  check_roles(row.turns, row.variables);
  return rendered(row.turns, add_generation_prompt, row.variables).text;
}

std::vector<int64_t> Prompts::encode(std::string_view text) const {
  return chat_ ? tokenizer_->encode(text, /*add_special_tokens=*/false) : tokenizer_->encode_prompt(text);
}

std::vector<int64_t> Prompts::encode_whole(std::string_view text) const {
  return tokenizer_->encode(text, /*add_special_tokens=*/!chat_);
}

std::optional<int64_t> Prompts::first_special(std::string_view text) const {
  const auto ids = encode(text);
  const auto first = std::find_if(ids.begin(), ids.end(), [&](int64_t id) { return tokenizer_->is_special(id); });
  return first == ids.end() ? std::nullopt : std::optional(*first);
}

std::string Prompts::text_with_answer(std::vector<Turn> turns, std::string_view answer,
                                      const tokenizer::ChatVariables& variables) const {
  turns.back() = {"assistant", std::string(answer)};
  return rendered(turns, /*add_generation_prompt=*/false, variables).text;
}

/// Returns what the template writes after an answer: the common suffix of two conversations with different answers.
std::string Prompts::text_after_answer(std::vector<Turn> turns, const tokenizer::ChatVariables& variables) const {
  const auto one = text_with_answer(turns, kTwoAnswers[0], variables);
  return std::string(common_suffix(one, text_with_answer(turns, kTwoAnswers[1], variables)));
}

/// Returns what the template writes after a prompt for the answer of the last turn. Returns nothing if it refuses the
/// conversation, or does not write it as this prompt and then the answer.
std::optional<std::string> Prompts::text_after_prompt(std::string_view prompt, std::vector<Turn> turns,
                                                      std::string_view answer,
                                                      const tokenizer::ChatVariables& variables) const {
  try {
    const auto whole = text_with_answer(std::move(turns), answer, variables);
    return whole.starts_with(prompt) ? std::optional(whole.substr(prompt.size())) : std::nullopt;
  } catch (const Error& error) {
    if (error.kind() != kData) throw;
    return std::nullopt;
  }
}

WrittenAnswers Prompts::written_answers(const Row& row, std::string_view prompt,
                                        std::span<const std::string> answers) const {
  WrittenAnswers written{.before = {}, .texts = {answers.begin(), answers.end()}};
  if (!chat_) return written;
  const auto turns = turns_of(row);
  const auto with = [&](std::string_view answer) { return text_after_prompt(prompt, turns, answer, row.variables); };
  const auto one = with(kTwoAnswers[0]), other = with(kTwoAnswers[1]);
  if (!one || !other || *one == *other) return written;  // a template may write nothing of an answer
  const auto after = common_suffix(*one, *other);
  written.before = common_prefix(*one, *other);
  for (auto& text : written.texts) {
    const auto whole = with(text);
    const bool ends = whole && whole->ends_with(after);
    text = ends ? whole->substr(0, whole->size() - after.size()) : written.before + text;
  }
  return written;
}

bool Prompts::ends_answers(std::span<const Turn> turns, const tokenizer::ChatVariables& variables) const {
  if (const auto& known = chat_->uses_tool_use(variables) ? ends_with_tools_ : ends_answers_) return *known;
  return first_special(text_after_answer({turns.begin(), turns.end()}, variables)).has_value();
}

/// Rejects roles that the template does not know: it would omit their messages silently.
void Prompts::check_roles(std::span<const Turn> turns, const tokenizer::ChatVariables& variables) const {
  for (size_t i = 0; i < turns.size(); ++i) {
    if (is_known_role(turns[i].role) || turns[i].content.empty()) continue;
    std::vector<Turn> changed(turns.begin(), turns.end());
    const auto text = rendered(changed, false, variables).text;
    changed[i] = with_content(changed[i], changed[i].content + "x");
    EK_CHECK(rendered(changed, false, variables).text != text, kData, chat_->of(variables).origin(),
             " writes nothing of a message of the role \"", shown(turns[i].role), "\": it would be lost");
  }
}

Transcript Prompts::transcript(const Row& row) const {
  if (chat_) return conversation(turns_of(row), row.variables);
  const auto flat = without_turns(row);
  Transcript result{.text = training_prompt(flat), .answers = {}};
  const size_t begin = result.text.size();
  result.text += flat.output;
  result.answers = {{begin, result.text.size()}};
  return result;
}

/// Returns the answer's bytes: from the end of the prompt, without the blanks after the end-of-turn token.
jinja::ByteSpan Prompts::answer_span(const std::string& prompt, const std::string& whole) const {
  const auto answer = without_blanks_behind(std::string_view(whole).substr(prompt.size()));
  const auto ids = encode(answer);
  const bool ends = !ids.empty() && tokenizer_->is_special(ids.back());
  return {prompt.size(), ends ? prompt.size() + answer.size() : whole.size()};
}

/// Returns the position of the answer of turn `i` in `whole`, the text of all turns. Returns nothing if the template
/// writes the answer differently there and after its own prompt.
std::optional<jinja::ByteSpan> Prompts::answer_of(std::span<const Turn> turns, size_t i, const std::string& whole,
                                                  const tokenizer::ChatVariables& variables) const {
  const bool last = i + 1 == turns.size();
  const auto prompt = rendered(turns.first(i), /*add_generation_prompt=*/true, variables).text;
  const auto until = last ? whole : rendered(turns.first(i + 1), /*add_generation_prompt=*/false, variables).text;
  const bool found_prompt = until.starts_with(prompt);
  EK_CHECK(found_prompt || !last, kData, chat_->of(variables).origin(),
           " does not write a conversation as its prompt and then the answer, ",
           "so the loss cannot tell them apart: a template with {% generation %} can");
  if (!found_prompt || !whole.starts_with(until)) return std::nullopt;
  return answer_span(prompt, until);
}

/// Returns the spans that {% generation %} marked, without those of turns that are not targets.
std::vector<jinja::ByteSpan> Prompts::marked_answers(std::span<const Turn> turns, std::vector<jinja::ByteSpan> marked,
                                                     const std::string& origin) const {
  std::vector<bool> targets;
  for (const auto& turn : turns)
    if (turn.role == "assistant") targets.push_back(turn.is_target);
  if (std::find(targets.begin(), targets.end(), false) == targets.end()) return marked;
  EK_CHECK(marked.size() == targets.size(), kData, origin, " marks ", marked.size(), " answers of ", targets.size(),
           " turns, so a weight of 0 cannot be told which");
  std::vector<jinja::ByteSpan> target_spans;
  for (size_t i = 0; i < marked.size(); ++i)
    if (targets[i]) target_spans.push_back(marked[i]);
  return target_spans;
}

Transcript Prompts::conversation(std::span<const Turn> turns, const tokenizer::ChatVariables& variables) const {
  check_roles(turns, variables);
  const auto& chat = chat_->of(variables);
  auto whole = rendered(turns, /*add_generation_prompt=*/false, variables);
  Transcript result{.text = std::move(whole.text), .answers = {}};
  if (chat.marks_answers()) result.answers = marked_answers(turns, std::move(whole.generated), chat.origin());
  for (size_t i = 0; i < turns.size() && !chat.marks_answers(); ++i) {
    if (turns[i].role != "assistant") continue;
    const auto answer = answer_of(turns, i, result.text, variables);
    result.last_only = result.last_only || !answer;
    if (result.last_only) result.answers.clear();
    if (answer && turns[i].is_target) result.answers.push_back(*answer);
  }
  result.ended = result.answers.empty() || ends_answers(turns, variables);
  return result;
}

void Prompts::add_stop(std::optional<int64_t> id) {
  if (id && std::find(stops_.begin(), stops_.end(), *id) == stops_.end()) stops_.push_back(*id);
}

/// Finds what ends an answer of a conversation with these variables.
void Prompts::find_stops_of(const tokenizer::ChatVariables& variables) {
  try {
    const auto end = first_special(text_after_answer({Turn{"user", "question"}, Turn{"assistant", ""}}, variables));
    (chat_->uses_tool_use(variables) ? ends_with_tools_ : ends_answers_) = end.has_value();
    add_stop(end);
  } catch (const Error&) {  // a template that rejects this conversation throws when a real one is rendered
  }
}

void Prompts::find_stops() {
  const auto& named = chat_->special_tokens();
  if (const auto eos = named.find("eos_token"); eos != named.end()) add_stop(tokenizer_->token_to_id(eos->second));
  find_stops_of({});
  if (chat_->has_tool_use()) find_stops_of({{"tools", jinja::Value::list({})}});
}

Row Prompts::fit_context(const Row& row, int64_t limit) const {
  if (row.input.empty()) return row;
  const auto tokens_with = [&](std::string_view context) {
    return static_cast<int64_t>(encode(evaluation_prompt(*with_context(row, std::string(context)))).size());
  };
  if (tokens_with(row.input) <= limit) return row;
  auto fitted = with_context(row, context_window(row.input, {}, limit, *tokenizer_, tokens_with));
  EK_CHECK(fitted.has_value(), kData, "the prompt of \"", shown(row.instruction), "\" is longer than ", limit,
           " tokens, even with the first word or character of its context alone");
  return std::move(*fitted);
}

}  // namespace evenkeel::data
