#include <ATen/Parallel.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/model_options.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/machine.h"
#include "models/memory_plan.h"
#include "scoring/generation.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel {
namespace {

struct GenerateFlags {
  ModelOptions model;
  std::vector<std::string> prompts;
  GenerationOptions generation{.max_new_tokens = 64};
  bool json = false;
};

void print_text(const std::string& prompt, const std::string& text) { std::cout << prompt << text << '\n'; }

void print_json(const TokenIds& prompt, const TokenIds& ids, const std::string& text) {
  std::cout << OrderedJson{{"prompt_ids", prompt}, {"ids", ids}, {"text", text}}.dump() << '\n';
}

/// The caches of all prompts and beams, and the pass that fills them.
MemoryPlan plan_of(const ModelSpec& spec, std::span<const TokenIds> prompts, const GenerationOptions& options) {
  int64_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  const auto sequences = static_cast<int64_t>(prompts.size()) * options.beams;
  const int64_t length = std::min(longest + options.max_new_tokens, spec.max_positions);
  const PassShape pass{.tokens = static_cast<int64_t>(prompts.size()) * longest,
                       .targets = sequences,
                       .top_k = spec.top_k,
                       .threads = at::get_num_threads()};
  return {.parts = {{concat("caches of ", sequences, " sequences of ", length, " tokens"),
                     cache_bytes(spec, sequences, length) + passing_bytes(spec, pass),
                     "--max-new-tokens, --beams or the number of prompts"}}};
}

void run_generate(const GenerateFlags& flags) {
  const auto& options = flags.generation;
  limits::check_integer("--max-new-tokens", options.max_new_tokens, 1, limits::kTokens);
  limits::check_integer("--beams", options.beams, 1, limits::kBeams);
  const auto opened = open_model(flags.model);
  const auto tokenizer = Tokenizer::of_model(opened.folder);
  std::vector<TokenIds> prompts;
  for (const auto& prompt : flags.prompts) prompts.push_back(tokenizer.encode(prompt));
  require_memory(plan_of(opened.model->spec(), prompts, options), machine::memory(), "generating");
  const auto outputs = generate(*opened.model, opened.forward(), prompts, options);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto text = tokenizer.decode(outputs[i], true);
    flags.json ? print_json(prompts[i], outputs[i], text) : print_text(flags.prompts[i], text);
  }
}

}  // namespace

void add_generate_command(CLI::App& program) {
  auto flags = std::make_shared<GenerateFlags>();
  auto* command = program.add_subcommand("generate", "continues a text");
  command->description(
      "Example: evenkeel generate --model builtin:tiny-olmoe --prompt \"Once\" --max-new-tokens 40\n\n"
      "Continues a text, greedily or by beam search; the same input always gives the same text.");
  flags->model.add_to(*command)->required();
  command->add_option("--prompt", flags->prompts, "text to continue; several are run together")->required();
  command->add_option("--max-new-tokens", flags->generation.max_new_tokens, "longest continuation")
      ->capture_default_str();
  command->add_option("--beams", flags->generation.beams, "width of the beam search; 1: greedy")->capture_default_str();
  command->add_flag("--json", flags->json, "one JSON line per prompt: prompt_ids, ids, text");
  command->callback([flags] { run_generate(*flags); });
}

}  // namespace evenkeel
