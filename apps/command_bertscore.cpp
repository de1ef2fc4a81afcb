#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/input_lines.h"
#include "apps/model_options.h"
#include "apps/output.h"
#include "base/format/limits.h"
#include "base/plain/json.h"
#include "base/plain/log.h"
#include "scoring/bert_score.h"

namespace evenkeel::apps {
namespace {

struct BertScoreFlags {
  std::string model, input, baseline, device, dtype = "checkpoint";
  std::optional<int64_t> layer;
  int64_t threads = 0;
  bool idf = false, json = false, strict = false;
};

/// Reads a line. "reference" is one text, "references" a list of one or more texts. The candidate may also be named
/// "output", as in the file of `evenkeel evaluate --predictions`.
scoring::ComparedText text_of(const JsonView& line) {
  const auto output = line.find("output"), candidate = output ? output : line.find("candidate");
  const auto one = line.find("reference"), several = line.find("references");
  line.require(candidate && (one || (several && several->list().size() > 0)),
               ": allowed are {\"candidate\": \"...\", \"reference\": \"...\"} and {\"candidate\": \"...\", "
               "\"references\": [\"...\", ...]}");
  return {candidate->string(), one ? std::vector{one->string()} : several->strings()};
}

/// The rows in order: texts to compare, and the errors of rows that cannot be compared.
struct ReadTexts {
  std::vector<scoring::ComparedText> texts{};
  std::vector<std::string> faults{};  ///< error of each row; empty: the row is the next one of `texts`
  RowFaults count{};
};

ReadTexts read_texts(const BertScoreFlags& flags) {
  ReadTexts read;
  const auto use = [&](const JsonView& line) {
    read.texts.push_back(text_of(line));
    read.faults.emplace_back();
    read.count.good();
  };
  const auto on_fault = [&](const Error& error) { read.faults.push_back(read.count.note(error)); };
  flags.strict ? for_each_json_line(flags.input, use) : for_each_json_line(flags.input, use, on_fault);
  return read;
}

OrderedJson to_json(const scoring::MatchScore& score) {
  return {{"precision", score.precision}, {"recall", score.recall}, {"f1", score.f1}};
}

void print_json(size_t index, const scoring::BertScore& score) {
  OrderedJson line{{"index", index}};
  line.update(to_json(score.raw));
  if (score.rescaled) line["rescaled"] = to_json(*score.rescaled);
  line["empty"] = score.is_empty;
  line["cut"] = score.is_cut;
  std::cout << line.dump() << '\n';
}

void print_row(const std::string& name, const scoring::BertScore& score) {
  print("%8s", name.c_str());
  const auto columns = [](const scoring::MatchScore& m) { print(" %9.6f %9.6f %9.6f", m.precision, m.recall, m.f1); };
  columns(score.raw);
  if (score.rescaled) columns(*score.rescaled);
  print("\n");
}

void print_header(bool with_rescaled) {
  print("%8s %9s %9s %9s", "index", "P", "R", "F");
  if (with_rescaled) print(" %9s %9s %9s", "resc. P", "resc. R", "resc. F");
  print("\n");
}

/// Counts the means over the texts, and the numbers of blank candidates and of truncated texts.
class Summary {
 public:
  void add(const scoring::BertScore& score) {
    ++texts_;
    add(score.raw, sum_.raw);
    if (score.rescaled) add(*score.rescaled, sum_.rescaled ? *sum_.rescaled : sum_.rescaled.emplace());
    empty_ += score.is_empty;
    cut_ += score.is_cut;
  }
  void print(int64_t max_tokens) const {
    scoring::BertScore mean{.raw = divided(sum_.raw), .rescaled = std::nullopt};
    if (sum_.rescaled) mean.rescaled = divided(*sum_.rescaled);
    print_row("mean", mean);
    std::cout << texts_ << " texts, " << empty_ << " with an empty candidate, " << cut_ << " cut at " << max_tokens
              << " tokens\n";
  }

 private:
  static void add(const scoring::MatchScore& score, scoring::MatchScore& sum) {
    sum.precision += score.precision;
    sum.recall += score.recall;
    sum.f1 += score.f1;
  }
  scoring::MatchScore divided(const scoring::MatchScore& sum) const {
    const auto n = static_cast<double>(texts_);
    return {sum.precision / n, sum.recall / n, sum.f1 / n};
  }

  scoring::BertScore sum_;
  int64_t texts_ = 0, empty_ = 0, cut_ = 0;
};

scoring::BertScorer open_scorer(const BertScoreFlags& flags) {
  if (flags.layer) limits::check_integer("--layer", *flags.layer, 0, limits::kLayers);
  use_threads(flags.threads);
  const scoring::BertScoreOptions options{
      .layer = flags.layer.value_or(-1), .idf = flags.idf, .baseline = flags.baseline};
  return scoring::BertScorer::load(flags.model, options,
                                   storage_on(flags.device, parse_enum<models::BaseDtype>("--dtype", flags.dtype)));
}

/// Prints the errors of the rows from `index` on, up to the next row without one.
void print_faults(const BertScoreFlags& flags, std::span<const std::string> faults, size_t& index) {
  for (; index < faults.size() && !faults[index].empty(); ++index) {
    if (flags.json)
      std::cout << OrderedJson{{"index", index}, {"error", faults[index]}}.dump(-1, ' ', false,
                                                                                OrderedJson::error_handler_t::replace)
                << '\n';
    else
      print("%8zu error: %s\n", index, faults[index].c_str());
  }
}

void run_bertscore(const BertScoreFlags& flags) {
  const auto scorer = open_scorer(flags);
  const auto read = read_texts(flags);
  if (read.texts.empty()) read.count.finish("compared");
  const auto& encoder = scorer.encoder();
  log::info("[bertscore] ", flags.model, ": ", encoder.family, ", layer ", encoder.layer, " of ", encoder.num_layers,
            ", ", flags.idf ? "idf weights" : "equal weights");
  Summary summary;
  if (!flags.json) print_header(!flags.baseline.empty());
  size_t index = 0;
  print_faults(flags, read.faults, index);
  scorer.score(read.texts, [&](size_t, const scoring::BertScore& score) {
    flags.json ? print_json(index, score) : print_row(std::to_string(index), score);
    summary.add(score);
    print_faults(flags, read.faults, ++index);
  });
  if (!flags.json) summary.print(scorer.max_tokens());
  read.count.finish("compared");
}

}  // namespace

void add_bertscore_command(CLI::App& program) {
  auto flags = std::make_shared<BertScoreFlags>();
  auto* command = program.add_subcommand("bertscore", "BERTScore of candidate texts against references");
  command->footer(
      "Example: evenkeel bertscore --model models/roberta-large --input answers.jsonl --json\n\n"
      "BERTScore (precision, recall, F) of candidate texts against reference texts. Each input line is {\"candidate\": "
      "..., \"reference\": ...} or {\"candidate\": ..., \"references\": [...]}, or a free-text line of evaluate "
      "--predictions; of several references the best counts.");
  command
      ->add_option("--model", flags->model, "Hugging Face folder of a BERT or RoBERTa encoder with its tokenizer.json")
      ->required();
  command->add_option("--input", flags->input, "JSON lines, each with a candidate and its reference or references")
      ->required();
  command->add_option(
      "--layer", flags->layer,
      "whose hidden states are compared, 0: the embeddings (default: by the folder's name; roberta-large: 17)");
  command->add_flag("--idf", flags->idf, "weigh tokens by how rare they are in the references");
  command->add_option("--baseline", flags->baseline,
                      "LAYER,P,R,F table of the bert_score package: also print rescaled");
  command->add_option("--dtype", flags->dtype,
                      "storage of the weights: checkpoint (as in the file), float32, bfloat16, float64");
  command->add_option("--threads", flags->threads, "processor threads (default: all cores)");
  add_device_flag(*command, flags->device);
  command->add_flag("--strict", flags->strict,
                    "refuse the input when any line cannot be compared; else it gives an error in its place, and exit "
                    "code 1 at the end");
  command->add_flag("--json", flags->json, "JSON lines: index, precision, recall, f1, rescaled, empty, cut");
  command->callback([flags] { run_bertscore(*flags); });
}

}  // namespace evenkeel::apps
