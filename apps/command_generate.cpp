#include <ATen/Parallel.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/input_lines.h"
#include "apps/method_flag.h"
#include "apps/model_options.h"
#include "base/format/limits.h"
#include "base/plain/json.h"
#include "base/system/machine.h"
#include "data/prompt.h"
#include "data/row_keys.h"
#include "models/memory_plan.h"
#include "scoring/generation.h"

namespace evenkeel::apps {
namespace {

struct GenerateFlags {
  MethodFlag method;
  SourceOptions source;
  std::vector<std::string> prompts;
  std::string input, system;
  std::optional<std::string> form, chat_template, date;
  std::optional<double> temperature, top_p;
  std::optional<int64_t> top_k_tokens, seed;
  scoring::GenerationOptions generation{.max_new_tokens = 64};
  bool json = false, strict = false;
};

/// A prompt as text and as ids, or the error for which it cannot be answered.
struct ReadPrompt {
  std::string text{};
  scoring::TokenIds ids{};
  std::string fault{};
};

/// Returns a conversation: `system` if it is not empty, the question, and an empty answer.
data::Row question(const std::string& system, const std::string& prompt) {
  data::Row row;
  if (!system.empty()) row.turns.push_back({"system", system});
  row.turns.push_back({"user", prompt});
  row.turns.push_back({"assistant", ""});
  return row;
}

/// Returns the options of sampling, or nothing if none of its flags is given.
std::optional<scoring::Sampling> sampling_of(const GenerateFlags& flags) {
  const bool draws = flags.temperature || flags.top_p || flags.top_k_tokens;
  EK_CHECK(draws || !flags.seed, kConfig, "--seed goes with --temperature, --top-p or --top-k-tokens");
  if (!draws) return std::nullopt;
  EK_CHECK(flags.generation.beams == 1, kConfig, "--beams is ", flags.generation.beams,
           ": beam search draws nothing, so it excludes --temperature, --top-p and --top-k-tokens");
  EK_CHECK(flags.seed.value_or(0) >= 0, kConfig, "--seed is ", *flags.seed, ", allowed: 0 or more");
  const scoring::Sampling sampling{.temperature = flags.temperature.value_or(1.0),
                                   .top_k = flags.top_k_tokens.value_or(0),
                                   .top_p = flags.top_p.value_or(1.0),
                                   .seed = static_cast<uint64_t>(flags.seed.value_or(42))};
  sampling.check();
  return sampling;
}

/// Prints the text: after its prompt for a plain prompt, alone for a question.
void print_text(data::PromptTemplate form, const std::string& prompt, const std::string& text) {
  std::cout << (form == data::PromptTemplate::kPlain ? prompt : "") << text << '\n';
}

void print_json(const scoring::TokenIds& prompt, const scoring::TokenIds& ids, const std::string& text) {
  std::cout << OrderedJson{{"prompt_ids", prompt}, {"ids", ids}, {"text", text}}.dump() << '\n';
}

/// Estimates the memory of the caches of all prompts and beams, and of the pass that fills them.
models::MemoryPlan plan_of(const models::ModelSpec& spec, std::span<const scoring::TokenIds> prompts,
                           const scoring::GenerationOptions& options) {
  int64_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  const auto sequences = static_cast<int64_t>(prompts.size()) * options.beams;
  const int64_t length = std::min(longest + options.max_new_tokens, spec.max_positions);
  const models::PassShape pass{
      .tokens = std::min(static_cast<int64_t>(prompts.size()) * longest, scoring::kPassTokens + longest),
      .targets = sequences,
      .top_k = spec.top_k,
      .threads = at::get_num_threads()};
  return {.parts = {{concat("caches of ", sequences, " sequences of ", length, " tokens"),
                     models::cache_bytes(spec, sequences, length) + models::passing_bytes(spec, pass),
                     "--max-new-tokens, --beams or the number of prompts"}}};
}

/// \param index  of the prompt, 0 is the first
void print_fault(size_t index, const std::string& fault, bool json) {
  const OrderedJson line{{"index", index}, {"error", fault}};
  std::cout << (json ? line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) : concat("error: ", fault))
            << '\n';
}

/// Reads the prompts of --prompt, then those of --input. A prompt of --input that cannot be answered does not stop the
/// others.
std::vector<ReadPrompt> read_prompts(const GenerateFlags& flags, const models::ModelSpec& spec,
                                     const data::Prompts& prompts, RowFaults& faults) {
  std::vector<ReadPrompt> all;
  const auto read = [&](const std::string& prompt) {
    ReadPrompt made{.text = prompts.evaluation_prompt(question(flags.system, prompt))};
    made.ids = prompts.encode(made.text);
    return made;
  };
  for (const auto& prompt : flags.prompts) all.push_back(read(prompt));
  if (flags.input.empty()) return all;
  const auto use = [&](const JsonView& line) {
    const auto prompt = line.at("prompt");
    data::check_prompt_alone(line);
    auto made = read(prompt.string());
    const auto length = static_cast<int64_t>(made.ids.size());
    prompt.require(length > 0, " has no tokens");
    prompt.require(length + flags.generation.max_new_tokens <= spec.max_positions, " has ", length, " tokens, with ",
                   flags.generation.max_new_tokens, " new ones more than the model's ", spec.max_positions,
                   " positions");
    all.push_back(std::move(made));
    faults.good();
  };
  const auto on_fault = [&](const Error& error) {
    all.push_back({.text = {}, .ids = {}, .fault = faults.note(error)});
  };
  flags.strict ? for_each_json_line(flags.input, use) : for_each_json_line(flags.input, use, on_fault);
  return all;
}

void run_generate(const GenerateFlags& flags) {
  auto options = flags.generation;
  EK_CHECK(!flags.prompts.empty() || !flags.input.empty(), kConfig, "generate needs --prompt or --input");
  EK_CHECK(!flags.strict || !flags.input.empty(), kConfig, "--strict goes with --input");
  limits::check_integer("--max-new-tokens", options.max_new_tokens, 1, limits::kTokens);
  limits::check_integer("--beams", options.beams, 1, limits::kBeams);
  options.sampling = sampling_of(flags);
  check_method_of_run(flags.method, flags.source.run);
  const auto given = parse_enum<data::PromptTemplate>("--template", flags.form.value_or("plain"));
  Source source(flags.source);
  const auto form = flags.form ? given : source.form();
  check_chat_flags(flags.chat_template.has_value(), flags.date.has_value(), form);
  if (flags.chat_template) source.use_chat_template(*flags.chat_template);
  if (flags.date) source.use_date(jinja::Date::read(jinja::Date::settled(*flags.date), "--date"));
  const data::Prompts prompts(source.tokenizer(), form);
  options.stops = prompts.stops();
  RowFaults faults;
  const auto read = read_prompts(flags, source.model().spec(), prompts, faults);
  std::vector<scoring::TokenIds> ids;
  for (const auto& prompt : read)
    if (prompt.fault.empty()) ids.push_back(prompt.ids);
  models::require_memory(plan_of(source.model().spec(), ids, options), machine::memory(), "generating");
  const auto outputs = scoring::generate(source.model(), source.forward(), ids, options);
  auto next = outputs.begin();
  for (size_t i = 0; i < read.size(); ++i) {
    const auto& prompt = read[i];
    if (!prompt.fault.empty()) {
      print_fault(i, prompt.fault, flags.json);
      continue;
    }
    const auto text = source.tokenizer().decode(*next, true);
    flags.json ? print_json(prompt.ids, *next, text) : print_text(form, prompt.text, text);
    ++next;
  }
  faults.finish("answered");
}

}  // namespace

void add_generate_command(CLI::App& program) {
  auto flags = std::make_shared<GenerateFlags>();
  auto* command = program.add_subcommand("generate", "continues a text");
  command->footer(
      "Example: evenkeel generate --model builtin:tiny-olmoe --prompt \"Once\" --max-new-tokens 40\n"
      "         evenkeel generate --run runs/demo --prompt \"Is water wet?\"\n\n"
      "Continues a text, or answers a question that a template is put around, as in training: greedily, by beam "
      "search, "
      "or drawn with a seed; the same input always gives the same text. A template's answer is printed alone.");
  flags->source.add_to(*command);
  flags->method.add_to(*command, "of a run that was made with it");
  command->add_option("--prompt", flags->prompts, "text to continue, or question; several are run together");
  command->add_option(
      "--input", flags->input,
      "JSON lines, each {\"prompt\": ...}; - is standard input. A line that cannot be answered gives an "
      "error in its place, and exit code 1 at the end");
  command->add_flag("--strict", flags->strict, "refuse the input when any of its lines cannot be answered");
  command->add_option("--template", flags->form,
                      "what is put around the prompt: paper, llm_adapters, chat, plain (default: the run's; plain)");
  command->add_option("--chat-template", flags->chat_template,
                      "--template chat: a template file in the place of the model's or the run's");
  command->add_option("--date", flags->date,
                      "--template chat: what strftime_now of the template writes, YYYY-MM-DD, with Thh:mm:ss, or today "
                      "(default: the run's)");
  command->add_option("--system", flags->system,
                      "text that a conversation begins with; without chat, in front of the prompt");
  command->add_option("--max-new-tokens", flags->generation.max_new_tokens, "longest continuation")
      ->capture_default_str();
  command->add_option("--beams", flags->generation.beams, "width of the beam search; 1: token by token")
      ->capture_default_str();
  command->add_option("--temperature", flags->temperature, "draw tokens, logits divided by this; above 0 (default 1)");
  command->add_option("--top-p", flags->top_p,
                      "draw from the likeliest tokens that hold so much probability, in (0, 1]");
  command->add_option("--top-k-tokens", flags->top_k_tokens, "draw from so many likeliest tokens; 0: all");
  command->add_option("--seed", flags->seed, "of the draws, 0 or more (default 42)");
  command->add_flag("--json", flags->json, "one JSON line per prompt: prompt_ids, ids, text");
  command->callback([flags] { run_generate(*flags); });
}

}  // namespace evenkeel::apps
