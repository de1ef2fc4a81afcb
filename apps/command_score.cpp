#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/input_lines.h"
#include "apps/model_options.h"
#include "apps/output.h"
#include "base/files.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "scoring/generation.h"
#include "scoring/likelihood.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel {
namespace {

struct ScoreFlags {
  ModelOptions model;
  std::string input, logits;
  bool json = false;
};

/// Reads {"text": ...} and {"ids": [...]} lines; a tokenizer is needed from the first text on.
class InputReader {
 public:
  InputReader(const OpenedModel& opened, const std::string& file) : opened_(opened), file_(file) {}

  std::vector<TokenIds> read() {
    std::vector<TokenIds> texts;
    for_each_json_line(file_, [&](const JsonView& line) { texts.push_back(checked(ids_of(line), line)); });
    return texts;
  }

 private:
  TokenIds ids_of(const JsonView& line) {
    if (const auto text = line.find("text")) return encode(text->string());
    const auto ids = line.find("ids");
    line.require(ids.has_value(), ": allowed are {\"text\": \"...\"} and {\"ids\": [...]}");
    return ids->integers();
  }

  TokenIds encode(const std::string& text) {
    if (!tokenizer_) tokenizer_ = Tokenizer::of_model(opened_.folder);
    return tokenizer_->encode(text);
  }

  TokenIds checked(TokenIds ids, const JsonView& line) const {
    const auto& spec = opened_.model->spec();
    line.require(!ids.empty(), ": no tokens");
    line.require(static_cast<int64_t>(ids.size()) <= spec.max_positions, ": ", ids.size(),
                 " tokens, allowed: ", spec.max_positions);
    for (const int64_t id : ids)
      line.require(id >= 0 && id < spec.vocab_size, ": token id ", id, ", allowed: 0 .. ", spec.vocab_size - 1);
    return ids;
  }

  const OpenedModel& opened_;
  std::string file_;
  std::optional<Tokenizer> tokenizer_;
};

void print_json(size_t index, const TokenIds& ids, const TextScore& score) {
  const OrderedJson line{{"index", index},
                         {"tokens", ids.size()},
                         {"logprob", score.logprob},
                         {"token_logprobs", score.token_logprobs},
                         {"ids", ids}};
  std::cout << line.dump() << '\n';
}

void print_row(size_t index, const TokenIds& ids, const TextScore& score) {
  const auto predicted = static_cast<double>(score.token_logprobs.size());
  print("%6zu %7zu %12.4f %10.4f\n", index, ids.size(), score.logprob, predicted > 0 ? score.logprob / predicted : 0.0);
}

/// The logits are written at the end: that they cannot be is said before the work.
void check_place(const std::string& file) {
  const auto folder = std::filesystem::path(file).parent_path();
  EK_CHECK(folder.empty() || is_folder(folder), kIo, file, " cannot be written: ", folder.string(), " is not a folder");
}

void run_score(const ScoreFlags& flags) {
  check_place(flags.logits);
  const auto opened = open_model(flags.model);
  const auto texts = InputReader(opened, flags.input).read();
  TensorMap logits;
  if (!flags.json) print("%6s %7s %12s %10s\n", "index", "tokens", "logprob", "per token");
  score_texts(*opened.model, opened.forward(), texts, !flags.logits.empty(), [&](size_t index, const TextScore& score) {
    flags.json ? print_json(index, texts[index], score) : print_row(index, texts[index], score);
    if (score.logits.defined()) logits[std::to_string(index)] = score.logits;
  });
  if (!flags.logits.empty()) save_safetensors(flags.logits, logits);
}

}  // namespace

void add_score_command(CLI::App& program) {
  auto flags = std::make_shared<ScoreFlags>();
  auto* command = program.add_subcommand("score", "log-probability of given texts, token by token");
  command->description(
      "Example: evenkeel score --model models/OLMoE-1B-7B-0924 --top-k 2 --input texts.jsonl --json\n\n"
      "Log-probability (natural log) of given texts, token by token. Each input line is {\"text\": ...} or {\"ids\": "
      "[...]}.");
  flags->model.add_to(*command)->required();
  command->add_option("--input", flags->input, "JSON lines, each with text or ids")->required();
  command->add_flag("--json", flags->json, "JSON lines: index, tokens, logprob, token_logprobs, ids");
  command->add_option("--logits", flags->logits, "also write all logits there, named by index: [tokens, vocabulary]");
  command->callback([flags] { run_score(*flags); });
}

}  // namespace evenkeel
