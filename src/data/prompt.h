/// \file  Prompt templates, byte for byte as published, and tokenising of rows for training.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "data/example.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel {

enum class PromptTemplate {
  kPaper,        ///< the paper's Alpaca prompt, no indentation
  kLlmAdapters,  ///< LLM-Adapters' finetune.py / commonsense_evaluate.py: indented, training and evaluation differ
};
constexpr auto names(PromptTemplate) {
  return std::array{config::EnumName<PromptTemplate>{"paper", PromptTemplate::kPaper},
                    config::EnumName<PromptTemplate>{"llm_adapters", PromptTemplate::kLlmAdapters}};
}

/// The text before the answer, in training / in evaluation. For kPaper they are the same. A row with `input` (context)
/// uses the template's context branch.
std::string training_prompt(const Row& row, PromptTemplate form);
std::string evaluation_prompt(const Row& row, PromptTemplate form);

/// The row with as much of its context, from the beginning on, as leaves its evaluation prompt at most `limit` tokens;
/// as it was when it has none or the prompt fits. \throws kData when the prompt is longer without the context.
Row fit_context(const Row& row, const Tokenizer& tokenizer, PromptTemplate form, int64_t limit);

struct TokenizeOptions {
  PromptTemplate form = PromptTemplate::kPaper;
  int64_t cutoff = 256;     ///< tokens kept; without context: right truncation, eos is added only when there is room
  bool mask_prompt = true;  ///< loss on the answer only; otherwise on every position
  int64_t eos = -1;         ///< id appended to a row that was not cut; the model's, so no key of a config

  void visit(auto& field) {
    field("template", form, "prompt: paper or llm_adapters");
    field("cutoff", cutoff,
          "tokens kept per row, 2 or more; a row with context keeps question, answer and a window around the answer");
    field("mask_prompt", mask_prompt, "loss on the answer only; false: on every token");
  }
  void resolve(const config::Table& table) const { table.check_integer("cutoff", cutoff, 2, limits::kTokens); }
};

struct TokenizedRows {
  std::vector<Example> examples;  ///< one per row that kept at least one target
  std::vector<int64_t> rows;      ///< index of the row each example came from
  int64_t cut = 0;                ///< rows longer than the cutoff
  int64_t windowed = 0;           ///< of these, rows that kept all but a part of their context
  int64_t without_target = 0;     ///< rows dropped because the cutoff left no room for a target; never trained on
};

/// A row with context that is too long keeps question, output and eos, and a window of the context around its answer.
TokenizedRows tokenize_rows(std::span<const Row> rows, const Tokenizer& tokenizer, const TokenizeOptions& options);

}  // namespace evenkeel
