#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/model_options.h"
#include "base/json.h"
#include "train/generation.h"

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

void run_generate(const GenerateFlags& flags) {
  const auto& options = flags.generation;
  EK_CHECK(options.max_new_tokens > 0, kConfig, "--max-new-tokens is ", options.max_new_tokens, ", allowed: 1 or more");
  EK_CHECK(options.beams > 0, kConfig, "--beams is ", options.beams, ", allowed: 1 or more");
  const auto opened = open_model(flags.model);
  const auto tokenizer = open_tokenizer(opened.folder);
  std::vector<TokenIds> prompts;
  for (const auto& prompt : flags.prompts) prompts.push_back(tokenizer.encode(prompt));
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
