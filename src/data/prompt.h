/// \file  Renders rows as text with a prompt template or the tokenizer's chat template, and tokenises rows for
/// training. The templates are byte for byte as published (docs/prompts.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_table.h"
#include "data/example.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::data {

/// Selects how rows are rendered.
enum class PromptTemplate {
  kPaper,  ///< Alpaca prompt of the UB-SMoE paper, without indentation
  /// Prompts of LLM-Adapters' finetune.py (training) and commonsense_evaluate.py (evaluation), with their indentation.
  kLlmAdapters,
  kChat,   ///< chat template of the tokenizer, rendered as transformers' apply_chat_template does
  kPlain,  ///< instruction and context (a blank line between them), followed directly by the answer
};
constexpr auto names(PromptTemplate) {
  return std::array{config::EnumName<PromptTemplate>{"paper", PromptTemplate::kPaper},
                    config::EnumName<PromptTemplate>{"llm_adapters", PromptTemplate::kLlmAdapters},
                    config::EnumName<PromptTemplate>{"chat", PromptTemplate::kChat},
                    config::EnumName<PromptTemplate>{"plain", PromptTemplate::kPlain}};
}

/// Returns the text before the answer in training, for any template but kChat. A row with `input` uses the template's
/// context branch. In a conversation the system message precedes the question.
/// \throws kData for a conversation with more than one answer (only kChat supports it); kInternal for kChat.
std::string training_prompt(const Row& row, PromptTemplate form);
/// Returns the text before the answer in evaluation. It differs from training_prompt() for kLlmAdapters only. \throws
/// as training_prompt().
std::string evaluation_prompt(const Row& row, PromptTemplate form);

/// A row rendered as text, with the byte ranges of its answers.
struct Transcript {
  std::string text;
  std::vector<jinja::ByteSpan> answers;  ///< in order; without turns that are not targets
  bool ended = false;      ///< true: the text ends its last answer with a special token, so no eos is appended
  bool last_only = false;  ///< true: `answers` has only the last answer (see Prompts::transcript)
};

/// Answers to a question as training has them after the evaluation prompt, without what ends an answer.
struct WrittenAnswers {
  std::string before{};              ///< what the chat template writes between prompt and answer; usually empty
  std::vector<std::string> texts{};  ///< one per answer, with the text before it
};

/// Renders rows with one template and one tokenizer, for training, evaluation and generation. Immutable and
/// thread-safe. The tokenizer is borrowed and must outlive the object.
class Prompts {
 public:
  /// \throws kData if `form` is kChat and the tokenizer's folder has no readable chat template.
  Prompts(const tokenizer::Tokenizer& tokenizer, PromptTemplate form);

  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }

  /// Returns the text before the last answer, in training. With kChat it equals evaluation_prompt().
  std::string training_prompt(const Row& row) const;
  /// Returns the text that a model continues with its answer. \throws kData when the template refuses the row; this
  /// holds for all functions that render a row
  std::string evaluation_prompt(const Row& row) const;

  /// Renders the row with its answers. In a conversation each assistant's turn is an answer; it extends to the
  /// end-of-turn token. The byte ranges come from the template's {% generation %} blocks; without them, the
  /// conversation is rendered up to each answer and the texts are compared. Some templates render earlier answers
  /// differently from the last one (Qwen3 removes their thinking); then only the last is an answer. \throws kData if
  /// the last answer cannot be located.
  Transcript transcript(const Row& row) const;

  /// Returns answers to the row's question as training has them after its prompt: a chat template may write something
  /// before an answer (Qwen3 an empty thinking), and may trim the answer. Further keys of the row's own answer, such as
  /// its reasoning, are left out, because they may tell which answer is right. With other templates, and with a chat
  /// template that refuses the conversation or does not write it as its prompt and then the answer, answers stay as
  /// they are. Cost: the chat template is rendered twice, and once more per answer.
  /// \param prompt  evaluation_prompt(row)
  WrittenAnswers written_answers(const Row& row, std::string_view prompt, std::span<const std::string> answers) const;

  /// Renders all turns of a conversation, including the last, whatever its role. REQUIRES kChat.
  /// \param add_generation_prompt  true: the text ends with the beginning of an assistant's message
  std::string conversation_text(const Row& row, bool add_generation_prompt) const;

  /// Tokenises a rendered text that an answer follows. The tokenizer adds the special tokens that it puts before a text
  /// (Llama's and Mixtral's begin token). With kChat it adds none, because the chat template writes its own, as in
  /// transformers' apply_chat_template.
  std::vector<int64_t> encode(std::string_view text) const;
  /// Tokenises a rendered text with its answers: encode(), and the special tokens that the tokenizer puts after a text.
  std::vector<int64_t> encode_whole(std::string_view text) const;

  /// Returns the ids that end an answer in addition to the model's eos: the tokenizer's eos_token and the template's
  /// end-of-turn token. Empty unless the template is kChat.
  const std::vector<int64_t>& stops() const { return stops_; }

  /// Returns the row with its context shortened at the end until the evaluation prompt has at most `limit` tokens.
  /// Returns the row unchanged if the prompt fits or the row has no context. \throws kData if the prompt is too long
  /// even with the first word of its context alone, or the first character of a word that could be split.
  Row fit_context(const Row& row, int64_t limit) const;

 private:
  jinja::Rendered rendered(std::span<const Turn> turns, bool add_generation_prompt,
                           const tokenizer::ChatVariables& variables) const;
  Transcript conversation(std::span<const Turn> turns, const tokenizer::ChatVariables& variables) const;
  std::optional<jinja::ByteSpan> answer_of(std::span<const Turn> turns, size_t i, const std::string& whole,
                                           const tokenizer::ChatVariables& variables) const;
  std::vector<jinja::ByteSpan> marked_answers(std::span<const Turn> turns, std::vector<jinja::ByteSpan> marked,
                                              const std::string& origin) const;
  jinja::ByteSpan answer_span(const std::string& prompt, const std::string& whole) const;
  std::string text_with_answer(std::vector<Turn> turns, std::string_view answer,
                               const tokenizer::ChatVariables& variables) const;
  std::string text_after_answer(std::vector<Turn> turns, const tokenizer::ChatVariables& variables) const;
  std::optional<std::string> text_after_prompt(std::string_view prompt, std::vector<Turn> turns,
                                               std::string_view answer,
                                               const tokenizer::ChatVariables& variables) const;
  bool ends_answers(std::span<const Turn> turns, const tokenizer::ChatVariables& variables) const;
  void check_roles(std::span<const Turn> turns, const tokenizer::ChatVariables& variables) const;
  std::optional<int64_t> first_special(std::string_view text) const;
  void find_stops();
  void find_stops_of(const tokenizer::ChatVariables& variables);
  void add_stop(std::optional<int64_t> id);

  const tokenizer::Tokenizer* tokenizer_;
  PromptTemplate form_;
  std::shared_ptr<const tokenizer::ChatTemplates> chat_;
  std::vector<int64_t> stops_;
  /// True if the template of conversations without tools ends an answer with a special token. Empty if the constructor
  /// could not determine it.
  std::optional<bool> ends_answers_;
  std::optional<bool> ends_with_tools_;  ///< the same for conversations with tools
};

/// Options of tokenize_rows().
struct TokenizeOptions {
  PromptTemplate form = PromptTemplate::kPaper;
  /// Largest number of tokens per row. A longer row without context is truncated on the right. eos is added only if it
  /// fits.
  int64_t cutoff = 256;
  bool mask_prompt = true;  ///< true: the loss covers the answers only; false: every position
  /// Id appended to rows that were not truncated and do not end with an end-of-turn token; -1: none. It comes from the
  /// model and is not a config key.
  int64_t eos = -1;

  void visit(auto& field) {
    field("template", form, "prompt template: paper, llm_adapters, chat (the tokenizer's own) or plain");
    field("cutoff", cutoff,
          "largest number of tokens per row, 2 or more; a row with context keeps question, answer and a window around "
          "the answer");
    field("mask_prompt", mask_prompt, "compute the loss on answers only; false: on all tokens");
  }
  void resolve(const config::Table& table) const { table.check_integer("cutoff", cutoff, 2, limits::kTokens); }
};

/// Result of tokenize_rows().
struct TokenizedRows {
  std::vector<Example> examples;    ///< one per row that has at least one target
  std::vector<int64_t> rows;        ///< index of the row of each example
  int64_t cut = 0;                  ///< rows longer than the cutoff
  int64_t windowed = 0;             ///< rows among `cut` that lost only a part of their context
  int64_t last_only = 0;            ///< conversations with only the last answer as target (Prompts::transcript)
  int64_t without_target = 0;       ///< rows dropped because no target fits within the cutoff
  std::vector<int64_t> left_out{};  ///< indices of rows that cannot be tokenised and are not required, ascending
  std::string first_fault{};        ///< place of the first of these rows, and its error; empty if there is none
  std::string note{};               ///< how many rows are in `left_out`, and first_fault; empty if there is none
};

/// Tokenises rows for training. A row with context that is too long keeps its question, output and eos, and a window of
/// the context: around the output if Row::answer_at is known, else from the beginning. A row that cannot be tokenised,
/// as its template refuses it, is left out if it is not required (Row::is_required). \throws kData naming such a row
/// that is required, by its place or its number from 0; kConfig for a cutoff below 2.
TokenizedRows tokenize_rows(std::span<const Row> rows, const tokenizer::Tokenizer& tokenizer,
                            const TokenizeOptions& options);

/// Returns why there is no example: the note, how many rows lost their answer, or both.
/// \param tokenized  without examples \param limit  the limit of tokens, e.g. "data.cutoff = 256 tokens"
std::string why_no_example(const TokenizedRows& tokenized, std::string_view limit);

}  // namespace evenkeel::data
