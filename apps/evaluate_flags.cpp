#include "apps/evaluate_flags.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "apps/output_paths.h"
#include "apps/path_flags.h"
#include "apps/progress_flag.h"
#include "base/format/limits.h"
#include "base/plain/data_path.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "scoring/answer_journal.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::apps {
namespace {

/// Checks the files that are written, as far as their paths tell.
void check_outputs(const EvaluateFlags& flags) {
  if (!flags.predictions.empty()) check_output_file("--predictions", flags.predictions);
  if (flags.journal.empty()) return;
  check_replaced_file("--journal", flags.journal);
  scoring::check_journal(flags.journal);
  if (!flags.predictions.empty()) check_two_files("--predictions", flags.predictions, "--journal", flags.journal);
}

/// Checks that a flag that only says what --data FILE is goes with it.
void check_row_flags(const EvaluateFlags& flags) {
  const bool of_files = flags.format || flags.score || flags.strict || !flags.options.empty() || !flags.ignore.empty();
  EK_CHECK(!of_files || (flags.asks_for_files() && !flags.data.empty()), kConfig,
           "--format, --score, --options, --ignore and --strict say what --data FILE is: they go with --tasks files");
  std::set<std::string_view> options;
  for (const auto& option : flags.options)
    EK_CHECK(options.insert(option).second, kConfig, "--options holds \"", shown(option),
             "\" twice, allowed: every answer once");
}

void check_budgets(std::span<const double> budgets) {
  std::set<double> known;
  for (const double budget : budgets) {
    EK_CHECK(budget > 0 && budget <= 1, kConfig, "--budget is ", budget, ", allowed: (0, 1]");
    EK_CHECK(known.insert(budget).second, kConfig, "--budget holds ", budget, " twice, allowed: every budget once");
  }
}

/// Reads the values of --budget, each of which holds numbers between commas.
std::vector<double> split_budgets(const std::vector<std::string>& values) {
  std::vector<double> budgets;
  for (std::string_view rest : values)
    for (size_t comma = 0; comma != std::string_view::npos;) {
      comma = rest.find(',');
      auto word = rest.substr(0, comma);
      word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
      const auto budget = parse_number<double>(word);
      EK_CHECK(budget, kConfig, "--budget holds \"", shown(word), "\", allowed: numbers between commas");
      budgets.push_back(*budget);
      if (comma != std::string_view::npos) rest.remove_prefix(comma + 1);
    }
  return budgets;
}

/// Adds the flags of a run.
void add_run_flags(CLI::App& command, EvaluateFlags& flags) {
  command.add_option("--run", flags.run, "run folder: its model, adapter and method at the last committed round");
  add_base_flag(command, flags.base);
  add_best_flag(command, flags.best);
}

/// Adds the flags that locate and describe rows.
void add_row_flags(CLI::App& command, EvaluateFlags& flags) {
  command.add_option(
      "--data", flags.data,
      "folder of the tasks' files (default: $EVENKEEL_DATA/<family>); with --tasks files a file of rows, "
      "JSON or JSON lines, or a glob");
  command.add_option("--format", flags.format,
                     "of that file: alpaca, dolly, messages, sharegpt, prompt_completion or text (default: auto)");
  command.add_option("--score", flags.score, "and its answers: f1 (default), exact, choice or nll");
  command.add_option("--options", flags.options, "choice: the answers of rows without options, comma-separated")
      ->delimiter(',');
  command.add_option("--ignore", flags.ignore, "keys of the rows that are left out on purpose, comma-separated")
      ->delimiter(',');
  command.add_flag("--strict", flags.strict,
                   "refuse --data when a row cannot be read; else it is left out, and the exit code is 1");
}

void add_bert_flags(CLI::App& command, fed::BertScoreSection& flags) {
  command.add_option("--bert-encoder", flags.encoder,
                     "BERT or RoBERTa folder: BERTScore of free-text answers (--run: the run's)");
  command.add_option("--bert-layer", flags.layer, "its layer (default: that of the folder's name)");
  command.add_option("--bert-baseline", flags.baseline, "tsv file to rescale with");
}

}  // namespace

void EvaluateFlags::check() const {
  EK_CHECK(run.empty() != model.model.empty(), kConfig, "evaluate needs either --run or --model");
  EK_CHECK(run.empty() || (model.adapter.empty() && model.top_k == 0), kConfig,
           "--run brings its own adapter and experts: --adapter and --top-k go with --model");
  EK_CHECK(!best || !run.empty(), kConfig, "--best goes with --run");
  check_method_of_run(method, run);
  EK_CHECK(base.empty() || !run.empty(), kConfig, "--base goes with --run; --model names the model itself");
  EK_CHECK(!run.empty() || !tasks.empty(), kConfig, "--model needs --tasks: names or families, see list tasks");
  const auto& bert = bert_score;
  EK_CHECK(!bert.encoder.empty() || (bert.layer < 0 && bert.baseline.empty()), kConfig,
           "--bert-layer and --bert-baseline go with --bert-encoder");
  EK_CHECK(model.top_k == 0 || budgets.empty(), kConfig, "--top-k and --budget exclude each other");
  EK_CHECK(!questions || !predictions.empty(), kConfig, "--questions goes with --predictions");
  EK_CHECK(!in_the_run_only || !run.empty(), kConfig, "--in-the-run-only goes with --run");
  check_budgets(budgets);
  check_row_flags(*this);
  limits::check_integer("--limit", limit.value_or(0), 0, limits::kRows);
  if (const auto given = prompt_form(); given || run.empty())  // else the run's decides, once it is read
    check_chat_flags(chat_template.has_value(), date.has_value(), given.value_or(data::PromptTemplate::kPaper));
  if (date) jinja::Date::read(jinja::Date::settled(*date), "--date");
  EK_CHECK(seed.value_or(0) >= 0, kConfig, "--seed is ", *seed, ", allowed: 0 or more");
  limits::check_integer("--max-new-tokens", max_new_tokens.value_or(1), 1, limits::kTokens);
  limits::check_integer("--batch-size", batch_size.value_or(1), 1, limits::kBatch);
  limits::check_integer("--bert-layer", bert_score.layer, -1, limits::kLayers);
  limits::check_integer("--threads", model.threads, 0, limits::kThreads);
  EK_CHECK(!wants_events(progress) || !json, kConfig,
           "--json and --progress json both write to stdout: the events hold the scores too");
  check_outputs(*this);
}

bool EvaluateFlags::asks_for_files() const {
  return std::any_of(tasks.begin(), tasks.end(),
                     [](const auto& name) { return name == "files" || name.starts_with("files:"); });
}

std::optional<scoring::Decode> EvaluateFlags::decode_rule() const {
  if (!decode) return std::nullopt;
  return parse_enum<scoring::Decode>("--decode", *decode);
}

std::optional<data::PromptTemplate> EvaluateFlags::prompt_form() const {
  if (!form) return std::nullopt;
  return parse_enum<data::PromptTemplate>("--template", *form);
}

data::FilesConfig EvaluateFlags::files() const {
  data::FilesConfig set;
  set.test = {expand_data_path(data, "--data").string()};
  if (format) set.format = parse_enum<data::RowFormat>("--format", *format);
  if (score) set.score = parse_enum<data::Scoring>("--score", *score);
  set.options = options;
  set.ignore = ignore;
  set.strict = strict;
  EK_CHECK(set.options.empty() || set.score == data::Scoring::kChoice, kConfig, "--options go with --score choice");
  return set;
}

void check_outputs_apart(const EvaluateFlags& flags, std::vector<fs::path> inputs) {
  for (const auto& file : {flags.chat_template.value_or(""), flags.bert_score.baseline})
    if (!file.empty()) inputs.emplace_back(file);
  if (!flags.predictions.empty()) check_apart("--predictions", flags.predictions, inputs);
  if (!flags.journal.empty()) check_apart("--journal", flags.journal, inputs);
}

std::vector<data::TaskInfo> tasks_of(const std::vector<std::string>& names, const data::RowOptions& from) {
  std::vector<data::TaskInfo> tasks;
  for (const auto& name : data::expand_tasks(names, from)) tasks.push_back(data::find_task(name, from));
  return tasks;
}

void check_data_is_read(const EvaluateFlags& flags, const std::vector<data::TaskInfo>& tasks) {
  if (flags.data.empty() || flags.asks_for_files()) return;
  std::vector<std::string> names;
  for (const auto& task : tasks) {
    if (data::find_task_family(task.family).in_folder) return;
    names.push_back(task.name);
  }
  fail(kConfig, "--data is ", shown(flags.data), ", which no evaluated task reads: ", join(names),
       "; --tasks files scores a file of rows");
}

void lead_to_rows(const EvaluateFlags& flags, const data::TaskInfo& task, fs::path& path) {
  if (!data::find_task_family(task.family).in_folder) return;
  if (!flags.data.empty() && !flags.asks_for_files()) path = flags.data;
  if (!path.empty()) return;
  const char* folder = std::getenv("EVENKEEL_DATA");
  EK_CHECK(folder != nullptr, kConfig, "task ", task.name,
           " is read from files: give --data, or set EVENKEEL_DATA to the folder that holds ", task.family, "/");
  path = folder;
}

void warn_of_rebuilt(const data::TaskInfo& task, const data::RowOptions& from) {
  if (task.file.empty()) return;
  for (const auto& file : data::test_files(task, from)) {
    const auto state = data::file_state(file);
    if (state == data::FileState::kExact) return;
    log::warning("[evaluate] ", task.name, ": ", file, " is ",
                 state == data::FileState::kRebuilt
                     ? "a rebuilt copy, not the published file: scores are not comparable to it"
                     : "not a file known by its sha256");
  }
}

void EvaluateFlags::add_to(CLI::App& command) {
  add_run_flags(command, *this);
  model.add_to(command);
  command.add_option("--tasks", tasks, "tasks or families, comma-separated (evenkeel list tasks; --run: the run's)")
      ->delimiter(',');
  command
      .add_option_function<std::vector<std::string>>(
          "--budget", [this](const auto& values) { budgets = split_budgets(values); },
          "shares of the experts per token, each in (0, 1] (--run: the run's)")
      ->type_name("FLOAT");
  command.add_option("--limit", limit, "rows per task, 0: all");
  command.add_option("--seed", seed, "which rows a limit draws (default 42; --run: the run's)");
  add_row_flags(command, *this);
  command.add_option("--template", form, "prompt: paper, llm_adapters, chat or plain (docs/prompts.md)");
  command.add_option("--chat-template", chat_template,
                     "--template chat: a template file in the place of the model's or the run's");
  command.add_option("--date", date,
                     "--template chat: what strftime_now of the template writes, YYYY-MM-DD, with Thh:mm:ss, or today "
                     "(default: the run's)");
  method.add_to(command, "of a run that was made with it");
  command.add_option("--decode", decode, "greedy, or beam4: beam search of width 4");
  command.add_option("--max-new-tokens", max_new_tokens, "longest answer (default 32; --run: the run's)");
  command.add_option("--batch-size", batch_size, "prompts run together (default 128)");
  add_bert_flags(command, bert_score);
  command.add_option("--journal", journal,
                     "file that keeps what is answered: the same command, killed, goes on from it");
  command.add_option("--predictions", predictions, "JSON lines file for every output, read and ranked answer");
  command.add_flag("--questions", questions, "also write the text of every question into --predictions");
  command.add_flag("--in-the-run-only", in_the_run_only,
                   "--run: do not also score the exported adapter as other programs route it");
  command.add_flag("--json", json, "one JSON line per task and budget");
  add_progress_flag(command, progress);
}

}  // namespace evenkeel::apps
