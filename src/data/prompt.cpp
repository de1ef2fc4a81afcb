#include "data/prompt.h"

#include <algorithm>

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

}  // namespace

std::string training_prompt(const Row& row, PromptTemplate form) {
  return form == PromptTemplate::kPaper ? paper_prompt(row) : llm_adapters_prompt(row, "  ", kIndent);
}

std::string evaluation_prompt(const Row& row, PromptTemplate form) {
  return form == PromptTemplate::kPaper ? paper_prompt(row) : llm_adapters_prompt(row, " ", "");
}

namespace {

/// The row with its context replaced, when one was found; its answer then stands elsewhere.
std::optional<Row> with_context(Row row, std::optional<std::string> context) {
  if (!context) return std::nullopt;
  row.input = std::move(*context);
  row.answer_at = -1;
  return row;
}

/// Length of the common prefix: the tokens of a prompt, unless its last token merged with the answer's first.
int64_t common_prefix(std::span<const int64_t> a, std::span<const int64_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

class RowEncoder {
 public:
  RowEncoder(const Tokenizer& tokenizer, const TokenizeOptions& options) : tokenizer_(tokenizer), options_(options) {}

  /// Nothing when there is no room for the answer and its place in the context. Counts what was cut.
  std::optional<Example> encode(const Row& row, TokenizedRows& counts) const {
    auto ids = row_ids(row);
    const bool cut = static_cast<int64_t>(ids.size()) > (row.input.empty() ? options_.cutoff : room_beside_eos());
    counts.cut += cut;
    if (!cut || row.input.empty()) return example(row, std::move(ids));
    const auto window = windowed(row);
    if (!window) return std::nullopt;
    ++counts.windowed;
    return example(*window, row_ids(*window));
  }

 private:
  int64_t room_beside_eos() const { return options_.cutoff - (options_.eos < 0 ? 0 : 1); }

  std::vector<int64_t> token_ids(const std::string& text) const {
    return tokenizer_.encode(text, /*add_special_tokens=*/false);
  }

  /// Prompt and output, uncut and without eos.
  std::vector<int64_t> row_ids(const Row& row) const {
    return token_ids(training_prompt(row, options_.form) + row.output);
  }

  std::optional<Row> windowed(const Row& row) const {
    KeptSpan kept;
    if (const auto at = static_cast<size_t>(row.answer_at); row.answer_at >= 0) kept = {at, at + row.output.size()};
    const auto tokens_with = [&](std::string_view context) {
      return static_cast<int64_t>(row_ids(*with_context(row, std::string(context))).size());
    };
    return with_context(row, context_window(row.input, kept, room_beside_eos(), tokenizer_, tokens_with));
  }

  Example example(const Row& row, std::vector<int64_t> ids) const {
    Example made{.ids = std::move(ids)};
    const auto length = static_cast<int64_t>(made.ids.size());
    if (length > options_.cutoff)
      made.ids.resize(static_cast<size_t>(options_.cutoff));
    else if (length < options_.cutoff && options_.eos >= 0 && made.ids.back() != options_.eos)
      made.ids.push_back(options_.eos);
    if (options_.mask_prompt)
      made.first_target = std::max<int64_t>(common_prefix(token_ids(training_prompt(row, options_.form)), made.ids), 1);
    return made;
  }

  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
};

}  // namespace

Row fit_context(const Row& row, const Tokenizer& tokenizer, PromptTemplate form, int64_t limit) {
  const auto tokens_with = [&](std::string_view context) {
    const auto prompt = evaluation_prompt(*with_context(row, std::string(context)), form);
    return static_cast<int64_t>(tokenizer.encode(prompt, /*add_special_tokens=*/false).size());
  };
  if (row.input.empty() || tokens_with(row.input) <= limit) return row;
  auto fitted = with_context(row, context_window(row.input, {}, limit, tokenizer, tokens_with));
  EK_CHECK(fitted.has_value(), kData, "the prompt of \"", row.instruction, "\" is longer than ", limit,
           " tokens, even without its context");
  return std::move(*fitted);
}

TokenizedRows tokenize_rows(std::span<const Row> rows, const Tokenizer& tokenizer, const TokenizeOptions& options) {
  EK_CHECK(options.cutoff >= 2, kConfig, "cutoff is ", options.cutoff, ", allowed: 2 tokens or more");
  const RowEncoder encoder(tokenizer, options);
  TokenizedRows result;
  for (size_t i = 0; i < rows.size(); ++i) {
    auto example = encoder.encode(rows[i], result);
    if (!example || example->targets() <= 0) {
      ++result.without_target;
      continue;
    }
    result.examples.push_back(std::move(*example));
    result.rows.push_back(static_cast<int64_t>(i));
  }
  return result;
}

}  // namespace evenkeel
