#include "data/prompt.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "data/context_window.h"

namespace evenkeel {
namespace {

constexpr std::string_view kTask =
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.";
constexpr std::string_view kTaskWithContext =
    "Below is an instruction that describes a task, paired with context that provides further information. "
    "Write a response that appropriately completes the request.";
constexpr std::string_view kTaskWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.";
// LLM-Adapters' prompts come from indented source text: the indentation is part of what its models see.
constexpr std::string_view kIndent = "                ";

std::string paper_prompt(const Row& row) {
  if (row.input.empty()) return concat(kTask, "\n\n### Instruction:\n", row.instruction, "\n\n### Response:\n");
  return concat(kTaskWithContext, "\n\n### Instruction:\n", row.instruction, "\n\n### Context:\n", row.input,
                "\n\n### Response:\n");
}

/// \param after_request  what follows "request."; \param blank  the blank lines between the blocks.
std::string llm_adapters_prompt(const Row& row, std::string_view after_request, std::string_view blank) {
  const auto block = [&](std::string_view title, std::string_view text) {
    return concat(kIndent, title, "\n", kIndent, text, "\n", blank, "\n");
  };
  std::string prompt = concat(row.input.empty() ? kTask : kTaskWithInput, after_request, "\n\n");
  prompt += block("### Instruction:", row.instruction);
  if (!row.input.empty()) prompt += block("### Input:", row.input);
  return prompt + concat(kIndent, "### Response:\n", kIndent);
}

/// "first\n\nsecond", or the one that is not empty.
std::string blocks(std::string_view first, std::string_view second) {
  return concat(first, first.empty() || second.empty() ? "" : "\n\n", second);
}

/// A conversation of one answer as instruction and output.
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

/// The row with its context replaced, when one was found; its answer then stands elsewhere.
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

std::string_view without_blanks_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);  // npos + 1 == 0
}

}  // namespace

std::string training_prompt(const Row& row, PromptTemplate form) { return prompt_of(row, form, /*training=*/true); }
std::string evaluation_prompt(const Row& row, PromptTemplate form) { return prompt_of(row, form, /*training=*/false); }

Prompts::Prompts(const Tokenizer& tokenizer, PromptTemplate form) : tokenizer_(&tokenizer), form_(form) {
  if (form != PromptTemplate::kChat) return;
  chat_ = std::make_shared<const ChatTemplate>(tokenizer.chat_template());
  stops_ = find_stops();
}

std::string Prompts::chat_text(std::span<const Turn> turns, bool add_generation_prompt) const {
  std::vector<ChatMessage> messages;
  for (const auto& turn : turns) messages.push_back({turn.role, turn.content});
  return chat_->render(messages, add_generation_prompt).text;
}

std::string Prompts::training_prompt(const Row& row) const {
  return chat_ ? evaluation_prompt(row) : evenkeel::training_prompt(row, form_);
}

std::string Prompts::evaluation_prompt(const Row& row) const {
  if (!chat_) return evenkeel::evaluation_prompt(row, form_);
  auto turns = turns_of(row);
  turns.pop_back();
  return chat_text(turns, /*add_generation_prompt=*/true);
}

std::vector<int64_t> Prompts::encode(std::string_view text) const {
  return tokenizer_->encode(text, /*add_special_tokens=*/form_ == PromptTemplate::kPlain);
}

bool Prompts::holds_special(std::string_view text) const {
  const auto ids = encode(text);
  return std::any_of(ids.begin(), ids.end(), [&](int64_t id) { return tokenizer_->is_special(id); });
}

Transcript Prompts::transcript(const Row& row) const {
  if (chat_) return conversation(turns_of(row));
  const auto flat = without_turns(row);
  Transcript made{.text = training_prompt(flat), .answers = {}};
  const size_t begin = made.text.size();
  made.text += flat.output;
  made.answers = {{begin, made.text.size()}};
  return made;
}

/// Behind the prompt, without the blanks that a template writes behind its end-of-turn token.
jinja::ByteSpan Prompts::answer_behind(const std::string& prompt, const std::string& whole) const {
  const auto answer = without_blanks_behind(std::string_view(whole).substr(prompt.size()));
  const auto ids = encode(answer);
  const bool ends = !ids.empty() && tokenizer_->is_special(ids.back());
  return {prompt.size(), ends ? prompt.size() + answer.size() : whole.size()};
}

Transcript Prompts::conversation(std::span<const Turn> turns) const {
  std::vector<ChatMessage> messages;
  for (const auto& turn : turns) messages.push_back({turn.role, turn.content});
  auto rendered = chat_->render(messages, /*add_generation_prompt=*/false);
  Transcript made{.text = std::move(rendered.text), .answers = std::move(rendered.generated)};
  for (size_t i = 0; i < turns.size() && !chat_->marks_answers(); ++i) {
    if (turns[i].role != "assistant") continue;
    const bool last = i + 1 == turns.size();
    const auto prompt = chat_text(turns.first(i), /*add_generation_prompt=*/true);
    const auto whole = last ? made.text : chat_text(turns.first(i + 1), /*add_generation_prompt=*/false);
    const bool told = whole.starts_with(prompt);
    EK_CHECK(told || !last, kData, chat_->origin(),
             " does not write a conversation as its prompt and then the answer, ",
             "so the loss cannot tell them apart: a template with {% generation %} can");
    if (told && made.text.starts_with(whole))
      made.answers.push_back(answer_behind(prompt, whole));
    else
      made.last_only = true;
  }
  if (made.last_only && !made.answers.empty()) made.answers = {made.answers.back()};
  made.ended = made.answers.empty() || holds_special(std::string_view(made.text).substr(made.answers.back().begin));
  return made;
}

std::vector<int64_t> Prompts::find_stops() const {
  std::vector<int64_t> stops;
  const auto add = [&](int64_t id) {
    if (std::find(stops.begin(), stops.end(), id) == stops.end()) stops.push_back(id);
  };
  const auto& named = chat_->special_tokens();
  if (const auto eos = named.find("eos_token"); eos != named.end())
    if (const auto id = tokenizer_->token_to_id(eos->second)) add(*id);
  try {
    constexpr std::string_view kAnswer = "answer";
    const auto text = chat_text(std::array{Turn{"user", "question"}, Turn{"assistant", std::string(kAnswer)}}, false);
    const auto behind = encode(std::string_view(text).substr(text.rfind(kAnswer) + kAnswer.size()));
    const auto end = std::find_if(behind.begin(), behind.end(), [&](int64_t id) { return tokenizer_->is_special(id); });
    if (end != behind.end()) add(*end);
  } catch (const Error&) {  // a template that refuses this conversation says so where one is rendered
  }
  return stops;
}

Row Prompts::fit_context(const Row& row, int64_t limit) const {
  if (row.input.empty()) return row;
  const auto tokens_with = [&](std::string_view context) {
    return static_cast<int64_t>(encode(evaluation_prompt(*with_context(row, std::string(context)))).size());
  };
  if (tokens_with(row.input) <= limit) return row;
  auto fitted = with_context(row, context_window(row.input, {}, limit, *tokenizer_, tokens_with));
  EK_CHECK(fitted.has_value(), kData, "the prompt of \"", row.instruction, "\" is longer than ", limit,
           " tokens, even without its context");
  return std::move(*fitted);
}

}  // namespace evenkeel
