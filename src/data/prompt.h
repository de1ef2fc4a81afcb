/// \file  How rows become text: prompt templates byte for byte as published, or the tokenizer's own chat template; and
/// tokenising of rows for training. Documented in docs/prompts.md.
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

namespace evenkeel {

enum class PromptTemplate {
  kPaper,        ///< the paper's Alpaca prompt, no indentation
  kLlmAdapters,  ///< LLM-Adapters' finetune.py / commonsense_evaluate.py: indented, training and evaluation differ
  kChat,         ///< the tokenizer's chat template, as transformers' apply_chat_template renders it
  kPlain,        ///< the instruction as it stands, the answer right behind it
};
constexpr auto names(PromptTemplate) {
  return std::array{config::EnumName<PromptTemplate>{"paper", PromptTemplate::kPaper},
                    config::EnumName<PromptTemplate>{"llm_adapters", PromptTemplate::kLlmAdapters},
                    config::EnumName<PromptTemplate>{"chat", PromptTemplate::kChat},
                    config::EnumName<PromptTemplate>{"plain", PromptTemplate::kPlain}};
}

/// The text before the answer, in training / in evaluation, by every template but kChat. For kPaper and kPlain they are
/// the same. A row with `input` (context) uses the template's context branch; in one of turns what the system says
/// stands in front of the question. \throws kData for a conversation of several answers, which only kChat can write
std::string training_prompt(const Row& row, PromptTemplate form);
std::string evaluation_prompt(const Row& row, PromptTemplate form);

/// A row as text: all of it, and which bytes of it are answers, in order.
struct Transcript {
  std::string text;
  std::vector<jinja::ByteSpan> answers;
  bool ended = false;      ///< the text itself says where the last answer ends: no eos is needed
  bool last_only = false;  ///< earlier answers are not among `answers`: see Prompts::transcript
};

/// A template together with the tokenizer whose tokens it makes: what training, evaluation and generation share.
/// Immutable; borrows the tokenizer.
class Prompts {
 public:
  /// \throws kData when `form` is kChat and the tokenizer's folder has no chat template, or one that cannot be read.
  Prompts(const Tokenizer& tokenizer, PromptTemplate form);

  const Tokenizer& tokenizer() const { return *tokenizer_; }

  /// The text before the (last) answer, in training / when a model is to answer.
  std::string training_prompt(const Row& row) const;
  std::string evaluation_prompt(const Row& row) const;

  /// The row with its answers. Of a conversation every assistant's turn is an answer, from behind what opens it to its
  /// end-of-turn token: as the template's {% generation %} says where it has that; else found by rendering the
  /// conversation up to each answer. Where a template writes earlier answers otherwise than the last one (Qwen3 takes
  /// their thinking out), only the last is one. \throws kData when not even the last can be told from its prompt
  Transcript transcript(const Row& row) const;

  /// A conversation as the template writes it, whoever speaks last. REQUIRES kChat.
  std::string conversation_text(const Row& row, bool add_generation_prompt) const;

  /// Token ids of a prompt, or of a prompt with its answer. kPlain adds the special tokens that the tokenizer puts
  /// around a text; other templates hold theirs.
  std::vector<int64_t> encode(std::string_view text) const;

  /// Ids that end an answer beside the model's eos: the tokenizer's eos_token and the template's end-of-turn token.
  /// Empty for all templates but kChat.
  const std::vector<int64_t>& stops() const { return stops_; }

  /// The row with as much of its context, from the beginning, as leaves its evaluation prompt at most `limit` tokens;
  /// as it was when it has none or the prompt fits. \throws kData when the prompt is longer without the context.
  Row fit_context(const Row& row, int64_t limit) const;

 private:
  jinja::Rendered rendered(std::span<const Turn> turns, bool add_generation_prompt,
                           const ChatVariables& variables) const;
  Transcript conversation(std::span<const Turn> turns, const ChatVariables& variables) const;
  std::optional<jinja::ByteSpan> answer_of(std::span<const Turn> turns, size_t i, const std::string& whole,
                                           const ChatVariables& variables) const;
  std::vector<jinja::ByteSpan> marked_answers(std::span<const Turn> turns, std::vector<jinja::ByteSpan> marked) const;
  jinja::ByteSpan answer_span(const std::string& prompt, const std::string& whole) const;
  std::string behind_last(std::vector<Turn> turns, const ChatVariables& variables) const;
  bool ends_answers(std::span<const Turn> turns, const ChatVariables& variables) const;
  void check_roles(std::span<const Turn> turns, const ChatVariables& variables) const;
  std::optional<int64_t> first_special(std::string_view text) const;
  std::vector<int64_t> find_stops();

  const Tokenizer* tokenizer_;
  PromptTemplate form_;
  std::shared_ptr<const ChatTemplate> chat_;
  std::vector<int64_t> stops_;
  std::optional<bool> ends_answers_;  ///< whether the template ends an answer by a special token; nothing: not known
};

struct TokenizeOptions {
  PromptTemplate form = PromptTemplate::kPaper;
  int64_t cutoff = 256;     ///< tokens kept; without context: right truncation, eos is added only when there is room
  bool mask_prompt = true;  ///< loss on the answers only; otherwise on every position
  int64_t eos = -1;  ///< id appended to a row that was not cut and does not say itself that it ends; the model's,
                     ///< so no key of a config

  void visit(auto& field) {
    field("template", form, "prompt: paper, llm_adapters, chat (the tokenizer's own) or plain");
    field("cutoff", cutoff,
          "tokens kept per row, 2 or more; a row with context keeps question, answer and a window around the answer");
    field("mask_prompt", mask_prompt, "loss on the answers only; false: on every token");
  }
  void resolve(const config::Table& table) const { table.check_integer("cutoff", cutoff, 2, limits::kTokens); }
};

struct TokenizedRows {
  std::vector<Example> examples;  ///< one per row that kept at least one target
  std::vector<int64_t> rows;      ///< index of the row each example came from
  int64_t cut = 0;                ///< rows longer than the cutoff
  int64_t windowed = 0;           ///< of these, rows that kept all but a part of their context
  int64_t last_only = 0;          ///< conversations of which only the last answer is a target (Prompts::transcript)
  int64_t without_target = 0;     ///< rows dropped because the cutoff left no room for a target; never trained on
};

/// A row with context that is too long keeps question, output and eos, and a window of the context around its answer.
/// \throws kData naming the row (0 = the first) that its template refuses.
TokenizedRows tokenize_rows(std::span<const Row> rows, const Tokenizer& tokenizer, const TokenizeOptions& options);

}  // namespace evenkeel
