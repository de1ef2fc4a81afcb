#include "data/prompt.h"

#include <algorithm>

#include "base/error.h"

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

/// Length of the common prefix: the tokens of a prompt, unless its last token merged with the answer's first.
int64_t common_prefix(std::span<const int64_t> a, std::span<const int64_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

TokenizedRows tokenize_rows(std::span<const Row> rows, const Tokenizer& tokenizer, const TokenizeOptions& options) {
  EK_CHECK(options.cutoff >= 2, kConfig, "cutoff is ", options.cutoff, ", allowed: 2 tokens or more");
  TokenizedRows result;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string prompt = training_prompt(rows[i], options.form);
    const auto prompt_ids = tokenizer.encode(prompt, /*add_special_tokens=*/false);
    Example example{.ids = tokenizer.encode(prompt + rows[i].output, /*add_special_tokens=*/false)};
    const auto length = static_cast<int64_t>(example.ids.size());
    if (length > options.cutoff) {
      ++result.cut;
      example.ids.resize(static_cast<size_t>(options.cutoff));
    } else if (length < options.cutoff && options.eos >= 0 && example.ids.back() != options.eos) {
      example.ids.push_back(options.eos);
    }
    if (options.mask_prompt) example.first_target = std::max<int64_t>(common_prefix(prompt_ids, example.ids), 1);
    if (example.targets() <= 0) {
      ++result.without_target;
      continue;
    }
    result.examples.push_back(std::move(example));
    result.rows.push_back(static_cast<int64_t>(i));
  }
  return result;
}

}  // namespace evenkeel
