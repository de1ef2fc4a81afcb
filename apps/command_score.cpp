#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/input_lines.h"
#include "apps/method_flag.h"
#include "apps/model_options.h"
#include "apps/output.h"
#include "apps/output_paths.h"
#include "base/format/safetensors.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "scoring/generation.h"
#include "scoring/likelihood.h"

namespace evenkeel::apps {
namespace {

struct ScoreFlags {
  MethodFlag method;
  SourceOptions source;
  std::string input, logits;
  bool json = false, strict = false;
};

struct ScoredText {
  scoring::TokenIds ids;
  std::optional<size_t> completion;  ///< of a prompt with a completion: where that begins
  std::string fault{};               ///< why it cannot be scored
};

/// Reads {"text": ...}, {"ids": [...]} and {"prompt": ..., "completion": ...} lines.
class InputReader {
 public:
  explicit InputReader(const Source& source) : source_(source) {}

  ScoredText read(const JsonView& line) const {
    auto text = text_of(line);
    check(text, line);
    return text;
  }

 private:
  ScoredText text_of(const JsonView& line) const {
    const auto text = line.find("text"), ids = line.find("ids");
    const auto prompt = line.find("prompt"), completion = line.find("completion");
    const int forms = (text ? 1 : 0) + (ids ? 1 : 0) + (prompt || completion ? 1 : 0);
    line.require(forms == 1 && prompt.has_value() == completion.has_value(),
                 forms > 1 ? ": several texts to score" : "",
                 ": allowed are {\"text\": \"...\"}, {\"ids\": [...]} and {\"prompt\": \"...\", \"completion\": "
                 "\"...\"}");
    if (text) return {source_.tokenizer().encode(text->string()), {}};
    if (ids) return {ids->integers(), {}};
    return completed(prompt->string(), completion->string());
  }

  /// Tokenises prompt and completion together. A token that spans the border belongs to the completion.
  ScoredText completed(const std::string& prompt, const std::string& completion) const {
    const auto before = source_.tokenizer().encode(prompt);
    auto ids = source_.tokenizer().encode(prompt + completion);
    const auto border = std::mismatch(before.begin(), before.end(), ids.begin(), ids.end()).first;
    if (border != before.begin()) return {std::move(ids), static_cast<size_t>(border - before.begin())};
    return behind_prefix(source_.tokenizer().encode(prompt + completion, /*add_special_tokens=*/false));
  }

  /// Puts the prefix token in front, because the first token of a text has no log-probability. A text that begins with
  /// the prefix token is unchanged. This is lm-evaluation-harness' rule for empty contexts.
  ScoredText behind_prefix(scoring::TokenIds ids) const {
    if (!ids.empty() && ids.front() != prefix()) ids.insert(ids.begin(), prefix());
    return {std::move(ids), 1};
  }

  /// Returns the prefix token: bos_token of the tokenizer, otherwise its eos_token, otherwise the token that ends a
  /// text in training.
  int64_t prefix() const {
    if (prefix_) return *prefix_;
    const auto named = source_.tokenizer().named_tokens();
    for (const auto* name : {"bos_token", "eos_token"})
      if (const auto token = named.find(name); token != named.end() && !prefix_)
        prefix_ = source_.tokenizer().token_to_id(token->second);
    if (!prefix_) prefix_ = source_.model().spec().end_of_text;
    EK_CHECK(*prefix_ >= 0, kData,
             "an empty prompt is scored behind the tokenizer's bos_token or eos_token, and the "
             "model's files name neither");
    return *prefix_;
  }

  void check(const ScoredText& text, const JsonView& line) const {
    const auto& spec = source_.model().spec();
    const auto& ids = text.ids;
    line.require(!ids.empty(), ": no tokens");
    line.require(text.completion.value_or(0) < ids.size(), ": the completion has no tokens to score");
    line.require(static_cast<int64_t>(ids.size()) <= spec.max_positions, ": ", ids.size(),
                 " tokens, allowed: ", spec.max_positions);
    for (const int64_t id : ids)
      line.require(id >= 0 && id < spec.vocab_size, ": token id ", id, ", allowed: 0 .. ", spec.vocab_size - 1);
  }

  const Source& source_;
  mutable std::optional<int64_t> prefix_;
};

/// Adds the figures of the completion alone. REQUIRES at least one token before the completion.
void add_completion(const scoring::TextScore& score, size_t begin, OrderedJson& line) {
  double logprob = 0;
  bool greedy = true;
  for (size_t i = begin - 1; i < score.token_logprobs.size(); ++i) {
    logprob += score.token_logprobs[i];
    greedy = greedy && score.greedy[i];
  }
  line["completion"] = OrderedJson{{"first", begin}, {"logprob", logprob}, {"greedy", greedy}};
}

void print_json(size_t index, const ScoredText& text, const scoring::TextScore& score) {
  OrderedJson line{{"index", index},           {"tokens", text.ids.size()},
                   {"logprob", score.logprob}, {"token_logprobs", score.token_logprobs},
                   {"greedy", score.greedy},   {"ids", text.ids}};
  if (text.completion) add_completion(score, *text.completion, line);
  std::cout << line.dump() << std::endl;
}

void print_row(size_t index, const scoring::TokenIds& ids, const scoring::TextScore& score) {
  const auto predicted = static_cast<double>(score.token_logprobs.size());
  print("%6zu %7zu %12.4f %10.4f\n", index, ids.size(), score.logprob, predicted > 0 ? score.logprob / predicted : 0.0);
}

void print_fault(size_t index, const std::string& fault, bool json) {
  if (json)
    std::cout << OrderedJson{{"index", index}, {"error", fault}}.dump(-1, ' ', false,
                                                                      OrderedJson::error_handler_t::replace)
              << std::endl;
  else
    print("%6zu error: %s\n", index, fault.c_str());
}

/// Checks the output file before scoring, because the logits are written at the end.
void check_output(const ScoreFlags& flags) {
  if (flags.logits.empty()) return;
  check_replaced_file("--logits", flags.logits);
  auto inputs = source_files(flags.source);
  inputs.emplace_back(flags.input);
  check_apart("--logits", flags.logits, inputs);
}

/// Scores texts in order and prints a line for each, also for those that cannot be scored.
class Scorer {
 public:
  Scorer(const Source& source, const ScoreFlags& flags) : source_(source), flags_(flags) {}

  void score(std::span<const ScoredText> texts) {
    if (!flags_.json && index_ == 0) print("%6s %7s %12s %10s\n", "index", "tokens", "logprob", "per token");
    std::vector<scoring::TokenIds> ids;
    for (const auto& text : texts)
      if (text.fault.empty()) ids.push_back(text.ids);
    auto next = texts.begin();
    const auto show_faults = [&] {
      for (; next != texts.end() && !next->fault.empty(); ++next) print_fault(index_++, next->fault, flags_.json);
    };
    show_faults();
    scoring::score_texts(source_.model(), source_.forward(), ids,
                         {.logits = !flags_.logits.empty(), .greedy = flags_.json},
                         [&](size_t, const scoring::TextScore& score) {
                           show(*next++, score);
                           show_faults();
                         });
  }

  void finish() const {
    if (!flags_.logits.empty()) save_safetensors(flags_.logits, logits_);
  }

 private:
  void show(const ScoredText& text, const scoring::TextScore& score) {
    flags_.json ? print_json(index_, text, score) : print_row(index_, text.ids, score);
    if (score.logits.defined()) logits_[std::to_string(index_)] = score.logits;
    ++index_;
  }

  const Source& source_;
  const ScoreFlags& flags_;
  size_t index_ = 0;
  TensorMap logits_;
};

/// Scores the lines of a file in batches. A line of standard input is answered before the next one is read. With
/// --strict all lines are read first.
void run_score(const ScoreFlags& flags) {
  check_source(flags.source);
  check_method_of_run(flags.method, flags.source.run);
  check_output(flags);
  const Source source(flags.source);
  const InputReader reader(source);
  Scorer scorer(source, flags);
  RowFaults faults;
  std::vector<ScoredText> texts;
  const auto take = [&](ScoredText text) {
    texts.push_back(std::move(text));
    if (flags.input != "-" || flags.strict) return;
    scorer.score(texts);
    texts.clear();
  };
  const auto read = [&](const JsonView& line) {
    auto text = reader.read(line);
    faults.good();
    take(std::move(text));
  };
  const auto on_fault = [&](const Error& error) { take({.ids = {}, .completion = {}, .fault = faults.note(error)}); };
  flags.strict ? for_each_json_line(flags.input, read) : for_each_json_line(flags.input, read, on_fault);
  if (!texts.empty()) scorer.score(texts);
  scorer.finish();
  faults.finish("scored");
}

}  // namespace

void add_score_command(CLI::App& program) {
  auto flags = std::make_shared<ScoreFlags>();
  auto* command = program.add_subcommand("score", "log-probability of given texts, token by token");
  command->footer(
      "Example: evenkeel score --model models/OLMoE-1B-7B-0924 --top-k 2 --input texts.jsonl --json\n"
      "         evenkeel score --run runs/demo --budget 0.125 --input - --json\n\n"
      "Log-probability (natural log) of given texts, token by token. Each input line is {\"text\": ...}, {\"ids\": "
      "[...]} or {\"prompt\": ..., \"completion\": ...}; no template is put around them. A line that cannot be scored "
      "gives an error in its place and exit code 1 at the end; the others are scored.");
  flags->source.add_to(*command);
  command
      ->add_option("--input", flags->input,
                   "JSON lines; - is standard input, each line answered before the next is read")
      ->required();
  command->add_flag(
      "--json", flags->json,
      "JSON lines: index, tokens, logprob, token_logprobs, greedy (was it the likeliest token), ids; of a "
      "completion its first token, logprob, greedy");
  command->add_flag("--strict", flags->strict,
                    "refuse the input when any line cannot be scored, before anything is: all lines are read first");
  flags->method.add_to(*command, "of a run that was made with it");
  command->add_option("--logits", flags->logits, "also write all logits there, named by index: [tokens, vocabulary]");
  command->callback([flags] { run_score(*flags); });
}

}  // namespace evenkeel::apps
