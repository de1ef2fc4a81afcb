#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/answers_of.h"
#include "apps/commands.h"
#include "apps/method_flag.h"
#include "apps/model_options.h"
#include "apps/output.h"
#include "apps/output_paths.h"
#include "apps/progress_flag.h"
#include "base/format/limits.h"
#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/os_error.h"
#include "base/plain/text.h"
#include "base/system/events.h"
#include "base/system/interrupt.h"
#include "fed/config/arithmetic.h"
#include "fed/run/state_evaluation.h"
#include "fed/store/manifest.h"
#include "report/client_scores.h"
#include "report/score_table.h"
#include "scoring/answer_journal.h"
#include "scoring/task_evaluation.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::apps {
namespace {

struct EvaluateFlags {
  MethodFlag method;
  ModelOptions model;
  std::string run, base, data, predictions, journal, progress = "text";
  fed::BertScoreSection bert_score;
  std::vector<std::string> tasks;
  std::vector<double> budgets;
  std::optional<std::string> decode, form, format, score, chat_template, date;
  std::vector<std::string> options, ignore;
  std::optional<int64_t> limit, seed, batch_size, max_new_tokens;
  bool json = false, in_the_run_only = false, strict = false, best = false, questions = false;
};

/// Counts the rows of --data that could not be read or asked, over all tasks.
struct LeftOut {
  int64_t rows = 0;
  std::string note{};

  void add(int64_t count, const std::string& why) {
    rows += count;
    if (count > 0 && note.empty()) note = why;
  }
  void finish() const { EK_CHECK(rows == 0, kData, note, "; --strict refuses them before anything is scored"); }
};

/// Prints scores, as JSON lines when they are computed or as a table at the end, and writes predictions to a file.
class ScoreWriter {
 public:
  explicit ScoreWriter(const EvaluateFlags& flags)
      : json_(flags.json),
        is_journalled_(!flags.journal.empty()),
        has_questions_(flags.questions),
        file_(flags.predictions),
        progress_("evaluate") {}

  void progress(const std::string& task, double budget, int64_t done, int64_t rows) {
    open_predictions();
    if (interrupt_requested()) stop("interrupted");
    progress_.update(concat(task, " at budget ", budget, ": ", done, " of ", rows, " rows"));
    if (events::take_progress_turn()) events::write("progress", fed::evaluation_progress(task, budget, done, rows));
  }

  void score(const scoring::TaskScore& score, std::span<const scoring::Prediction> predictions) {
    events::write("evaluation", record::write(score));
    if (json_) std::cout << record::write(score).dump() << std::endl;
    scores_.push_back(score);
    open_predictions();
    for (size_t row = 0; predictions_.is_open() && row < predictions.size(); ++row)
      predictions_ << line(score, row, predictions[row]) << '\n';
    predictions_.flush();
    check_predictions();
  }

  /// \throws Interrupted with the way to go on
  [[noreturn]] void stop(std::string_view why) const {
    throw Interrupted(concat(
        why, is_journalled_ ? "; the same command goes on with it" : "; the evaluation has to be started again"));
  }

  void finish() const {
    if (json_ || events::wanted()) return;
    std::cout << report::score_text(scores_);
    const auto of_clients = report::client_scores_tables(scores_);
    if (!of_clients.empty()) std::cout << '\n' << report::text_of(of_clients);
  }

 private:
  /// Opens the file. Called when there are answers, so that a command that is rejected earlier does not change the
  /// file.
  void open_predictions() {
    if (file_.empty() || predictions_.is_open()) return;
    predictions_.open(file_);
    check_predictions();
  }
  void check_predictions() const {
    EK_CHECK(predictions_.good(), kIo, file_, " cannot be written: ", os_error_text(errno));
  }

  std::string line(const scoring::TaskScore& score, size_t index, const scoring::Prediction& prediction) const {
    OrderedJson json{{"task", score.task}, {"budget", score.budget}};
    json["row"] = prediction.row < 0 ? static_cast<int64_t>(index) : prediction.row;
    if (!prediction.file.empty()) json["file"] = prediction.file;
    if (has_questions_) json["question"] = prediction.question;
    if (!score.rank_eval_mode.empty()) json["rank_eval_mode"] = score.rank_eval_mode;
    if (score.served_by != scoring::ServedBy::kRun) json["served_by"] = config::name_of(score.served_by);
    if (score.kind == scoring::AnswerKind::kLikelihood)
      add_likelihood(prediction, json);
    else
      score.kind == scoring::AnswerKind::kText ? add_text(prediction, json) : add_choice(prediction, json);
    if (score.kind != scoring::AnswerKind::kLikelihood) json["output"] = prediction.output;
    return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }

  static void add_likelihood(const scoring::Prediction& prediction, OrderedJson& json) {
    json["gold"] = prediction.gold;
    json["nll"] = prediction.nll;
    json["answer_tokens"] = prediction.answer_tokens;
  }

  static void add_choice(const scoring::Prediction& prediction, OrderedJson& json) {
    json["gold"] = prediction.gold;
    json["extracted"] = prediction.extracted;
    json["ranked"] = prediction.ranked;
  }

  static void add_text(const scoring::Prediction& prediction, OrderedJson& json) {
    json["references"] = prediction.references;
    json["exact_match"] = prediction.exact_match;
    json["f1"] = prediction.f1;
    if (prediction.bert_score) json["bert_score"] = *prediction.bert_score;
  }

  bool json_, is_journalled_, has_questions_;
  std::string file_;
  log::Progress progress_;
  std::ofstream predictions_;
  std::vector<scoring::TaskScore> scores_;
};

/// Checks the files that are written, as far as their paths tell.
void check_outputs(const EvaluateFlags& flags) {
  if (!flags.predictions.empty()) check_output_file("--predictions", flags.predictions);
  if (flags.journal.empty()) return;
  check_replaced_file("--journal", flags.journal);
  scoring::check_journal(flags.journal);
  if (!flags.predictions.empty()) check_two_files("--predictions", flags.predictions, "--journal", flags.journal);
}

/// Checks that no output is one of the input files.
void check_outputs_apart(const EvaluateFlags& flags, std::vector<fs::path> inputs) {
  for (const auto& file : {flags.chat_template.value_or(""), flags.bert_score.baseline})
    if (!file.empty()) inputs.emplace_back(file);
  if (!flags.predictions.empty()) check_apart("--predictions", flags.predictions, inputs);
  if (!flags.journal.empty()) check_apart("--journal", flags.journal, inputs);
}

bool asks_for_files(std::span<const std::string> tasks) {
  return std::any_of(tasks.begin(), tasks.end(),
                     [](const auto& name) { return name == "files" || name.starts_with("files:"); });
}

/// Checks that a flag that only says what --data FILE is goes with it.
void check_row_flags(const EvaluateFlags& flags) {
  const bool of_files = flags.format || flags.score || flags.strict || !flags.options.empty() || !flags.ignore.empty();
  EK_CHECK(!of_files || (asks_for_files(flags.tasks) && !flags.data.empty()), kConfig,
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

void check(const EvaluateFlags& flags) {
  EK_CHECK(flags.run.empty() != flags.model.model.empty(), kConfig, "evaluate needs either --run or --model");
  EK_CHECK(flags.run.empty() || (flags.model.adapter.empty() && flags.model.top_k == 0), kConfig,
           "--run brings its own adapter and experts: --adapter and --top-k go with --model");
  EK_CHECK(!flags.best || !flags.run.empty(), kConfig, "--best goes with --run");
  check_method_of_run(flags.method, flags.run);
  EK_CHECK(flags.base.empty() || !flags.run.empty(), kConfig, "--base goes with --run; --model names the model itself");
  EK_CHECK(!flags.run.empty() || !flags.tasks.empty(), kConfig,
           "--model needs --tasks: names or families, see list tasks");
  const auto& bert = flags.bert_score;
  EK_CHECK(!bert.encoder.empty() || (bert.layer < 0 && bert.baseline.empty()), kConfig,
           "--bert-layer and --bert-baseline go with --bert-encoder");
  EK_CHECK(flags.model.top_k == 0 || flags.budgets.empty(), kConfig, "--top-k and --budget exclude each other");
  EK_CHECK(!flags.questions || !flags.predictions.empty(), kConfig, "--questions goes with --predictions");
  EK_CHECK(!flags.in_the_run_only || !flags.run.empty(), kConfig, "--in-the-run-only goes with --run");
  check_budgets(flags.budgets);
  check_row_flags(flags);
  limits::check_integer("--limit", flags.limit.value_or(0), 0, limits::kRows);
  EK_CHECK(!flags.chat_template || !flags.form || *flags.form == "chat", kConfig,
           "--chat-template goes with --template chat");
  EK_CHECK(!flags.chat_template || flags.form || !flags.run.empty(), kConfig,
           "--chat-template goes with --template chat");
  EK_CHECK(!flags.date || (flags.form ? *flags.form == "chat" : !flags.run.empty()), kConfig,
           "--date goes with --template chat");
  if (flags.date) jinja::Date::read(jinja::Date::settled(*flags.date), "--date");
  EK_CHECK(flags.seed.value_or(0) >= 0, kConfig, "--seed is ", *flags.seed, ", allowed: 0 or more");
  limits::check_integer("--max-new-tokens", flags.max_new_tokens.value_or(1), 1, limits::kTokens);
  limits::check_integer("--batch-size", flags.batch_size.value_or(1), 1, limits::kBatch);
  limits::check_integer("--bert-layer", flags.bert_score.layer, -1, limits::kLayers);
  limits::check_integer("--threads", flags.model.threads, 0, limits::kThreads);
  EK_CHECK(!wants_events(flags.progress) || !flags.json, kConfig,
           "--json and --progress json both write to stdout: the events hold the scores too");
  check_outputs(flags);
}

std::optional<scoring::Decode> decode_of(const EvaluateFlags& flags) {
  if (!flags.decode) return std::nullopt;
  return parse_enum<scoring::Decode>("--decode", *flags.decode);
}

std::optional<data::PromptTemplate> form_of(const EvaluateFlags& flags) {
  if (!flags.form) return std::nullopt;
  return parse_enum<data::PromptTemplate>("--template", *flags.form);
}

/// Returns a set of user files whose test rows are those of --data.
data::FilesConfig files_of(const EvaluateFlags& flags) {
  data::FilesConfig files;
  files.test = {expand_data_path(flags.data, "--data").string()};
  if (flags.format) files.format = parse_enum<data::RowFormat>("--format", *flags.format);
  if (flags.score) files.score = parse_enum<data::Scoring>("--score", *flags.score);
  files.options = flags.options;
  files.ignore = flags.ignore;
  files.strict = flags.strict;
  EK_CHECK(files.options.empty() || files.score == data::Scoring::kChoice, kConfig, "--options go with --score choice");
  return files;
}

/// Checks that one of the tasks reads --data: as the file of --tasks files, or as the folder of its rows.
void check_data_is_read(const EvaluateFlags& flags, const std::vector<data::TaskInfo>& tasks) {
  if (flags.data.empty() || asks_for_files(flags.tasks)) return;
  std::vector<std::string> names;
  for (const auto& task : tasks) {
    if (data::find_task_family(task.family).in_folder) return;
    names.push_back(task.name);
  }
  fail(kConfig, "--data is ", shown(flags.data), ", which no evaluated task reads: ", join(names),
       "; --tasks files scores a file of rows");
}

/// Sets `path` to the folder of a task's rows: --data, or $EVENKEEL_DATA if no folder is given.
void lead_to_rows(const EvaluateFlags& flags, const data::TaskInfo& task, fs::path& path) {
  if (!data::find_task_family(task.family).in_folder) return;
  if (!flags.data.empty() && !asks_for_files(flags.tasks)) path = flags.data;
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

struct LoadedTask {
  data::TaskInfo task;
  data::TaskRows set;
  std::vector<std::string> files;  ///< that its rows are from
};

/// A tokenised task, and the key of its rows in a journal.
struct TokenizedTask {
  scoring::PreparedTask task;
  std::string key;
};

std::vector<data::TaskInfo> tasks_of(const std::vector<std::string>& names, const data::RowOptions& from) {
  std::vector<data::TaskInfo> tasks;
  for (const auto& name : data::expand_tasks(names, from)) tasks.push_back(data::find_task(name, from));
  return tasks;
}

std::vector<LoadedTask> load_tasks(const EvaluateFlags& flags) {
  data::RowOptions from{.limit = flags.limit.value_or(0),
                        .seed = static_cast<uint64_t>(flags.seed.value_or(42)),
                        .form = form_of(flags).value_or(data::PromptTemplate::kPaper)};
  if (asks_for_files(flags.tasks) && !flags.data.empty()) from.files = files_of(flags);
  std::vector<LoadedTask> loaded;
  const auto tasks = tasks_of(flags.tasks, from);
  check_data_is_read(flags, tasks);
  for (const auto& task : tasks) {
    lead_to_rows(flags, task, from.path);
    loaded.push_back({task, data::test_rows(task, from), data::test_files(task, from)});
    warn_of_rebuilt(task, from);
    scoring::check_test_rows(task, loaded.back().set.rows);
    if (!loaded.back().set.read.empty()) log::info("[evaluate] ", loaded.back().set.read);
  }
  return loaded;
}

/// A budget and its number of experts per token: the budget's share of the checkpoint's number, or --top-k.
struct BudgetExperts {
  double budget;
  int64_t top_k;
};

std::vector<BudgetExperts> budgets_of(const EvaluateFlags& flags, const models::ModelSpec& spec) {
  if (flags.model.top_k > 0)
    return {{static_cast<double>(flags.model.top_k) / static_cast<double>(spec.top_k), flags.model.top_k}};
  std::vector<BudgetExperts> all;
  for (const double budget : flags.budgets.empty() ? std::vector<double>{1.0} : flags.budgets)
    all.push_back({budget, fed::active_experts(spec, budget, "--budget")});
  return all;
}

/// Returns the files that an evaluation without a run reads.
std::vector<fs::path> files_read(const EvaluateFlags& flags, std::span<const LoadedTask> tasks) {
  auto files = source_files(flags.model);
  for (const auto& task : tasks) files.insert(files.end(), task.files.begin(), task.files.end());
  if (!flags.bert_score.encoder.empty())
    for (auto& file : fed::model_files(flags.bert_score.encoder)) files.push_back(std::move(file));
  return files;
}

/// Loads the tokenizer of the model's folder, with the chat template of the flags if one is given.
tokenizer::Tokenizer tokenizer_of(const EvaluateFlags& flags, const fs::path& folder, const models::ModelSpec& spec) {
  auto tokenizer = tokenizer::Tokenizer::of_model(folder);
  tokenizer.check_fits(spec.vocab_size, folder);
  if (flags.chat_template) tokenizer.use_chat_template(*flags.chat_template);
  if (flags.date) tokenizer.use_date(jinja::Date::read(jinja::Date::settled(*flags.date), "--date"));
  return tokenizer;
}

/// Checks and tokenises all tasks, without the weights.
std::vector<TokenizedTask> tokenized(const EvaluateFlags& flags, std::vector<LoadedTask> loaded, const fs::path& folder,
                                     const scoring::EvaluationOptions& options) {
  check_outputs_apart(flags, files_read(flags, loaded));
  const auto shape = models::load_shape(folder, {}, models::BesideAdapter::kAppliedByCaller);
  budgets_of(flags, shape->spec());
  const auto tokenizer = tokenizer_of(flags, folder, shape->spec());
  std::vector<TokenizedTask> tasks;
  for (auto& [task, set, files] : loaded) {
    auto key = flags.journal.empty() ? "" : key_of(task, set.rows);
    tasks.push_back({scoring::PreparedTask(task, std::move(set), tokenizer, shape->spec(), options), std::move(key)});
    scoring::check_task(*shape, tasks.back().task, options);
  }
  return tasks;
}

void evaluate_model(const EvaluateFlags& flags, ScoreWriter& writer, LeftOut& left_out) {
  const scoring::EvaluationOptions defaults;
  auto loaded = load_tasks(flags);
  for (const auto& one : loaded) left_out.add(one.set.left_out, one.set.note);
  std::optional<scoring::BertScorer> scorer;
  if (!flags.bert_score.encoder.empty())
    scorer = scoring::BertScorer::load(flags.bert_score.encoder, flags.bert_score, storage_on(flags.model.device));
  scoring::EvaluationOptions options{.form = form_of(flags).value_or(defaults.form),
                                     .decode = decode_of(flags).value_or(defaults.decode),
                                     .max_new_tokens = flags.max_new_tokens.value_or(defaults.max_new_tokens),
                                     .batch_size = flags.batch_size.value_or(defaults.batch_size),
                                     .bert_scorer = scorer ? &*scorer : nullptr};
  const auto tasks = tokenized(flags, std::move(loaded), models::find_model_folder(flags.model.model), options);
  for (const auto& [task, key] : tasks) left_out.add(task.left_out(), task.note());
  const auto opened = open_model(flags.model);
  const auto tokenizer = tokenizer_of(flags, opened.folder, opened.model->spec());
  std::optional<scoring::AnswerJournal> journal;
  if (!flags.journal.empty()) journal.emplace(flags.journal);
  options.journal = journal ? &*journal : nullptr;
  auto depends_on = journal ? answers_of(flags.model, opened, options) : "";
  if (flags.chat_template) depends_on += concat("template ", sha256_file(*flags.chat_template).substr(0, 16), ", ");
  if (flags.date) depends_on += concat("date ", jinja::Date::settled(*flags.date), ", ");
  for (const auto [budget, top_k] : budgets_of(flags, opened.model->spec())) {
    auto forward = opened.forward();
    forward.router.top_k = top_k;
    for (const auto& [task, key] : tasks) {
      if (journal) options.journal_key = concat(depends_on, top_k, " experts, ", key);
      std::vector<scoring::Prediction> predictions;
      const auto report = [&, budget = budget, name = task.task().name](int64_t done, int64_t all) {
        writer.progress(name, budget, done, all);
      };
      scoring::RowOutputs outputs;
      if (!flags.predictions.empty()) outputs.predictions = &predictions;
      auto score = scoring::evaluate_task({*opened.model, tokenizer, forward}, task, options, outputs, report);
      score.budget = budget;
      writer.score(score, predictions);
    }
  }
}

/// Scores the rows of --data in place of the run's, and of those that its clients bring.
void score_files(const EvaluateFlags& flags, fed::ExperimentConfig& config) {
  config.data.files = files_of(flags);
  for (auto& client : config.clients.client) client.data.clear(), client.test.clear();
}

/// Sets the folder of a run's rows: --data, otherwise the run's own folder, otherwise $EVENKEEL_DATA.
void lead_to_rows(const EvaluateFlags& flags, fed::ExperimentConfig& config) {
  fs::path path = config.data.path;
  const auto tasks = tasks_of(config.evaluate.tasks, config.rows());
  check_data_is_read(flags, tasks);
  for (const auto& task : tasks) {
    lead_to_rows(flags, task, path);
    config.data.path = path.string();
    warn_of_rebuilt(task, config.rows());
  }
}

/// Counts the rows of --data that a run's evaluation will skip.
void count_left_out(const EvaluateFlags& flags, const fed::ExperimentConfig& config, LeftOut& left_out) {
  if (!asks_for_files(flags.tasks) || flags.data.empty()) return;
  for (const auto& name : data::expand_tasks(flags.tasks, config.rows()))
    if (const auto task = data::find_task(name, config.rows()); task.family == "files") {
      const auto set = data::test_rows(task, config.rows());
      left_out.add(set.left_out, set.note);
    }
}

fed::RunEvaluation changes_of(const EvaluateFlags& flags, bool dtype_given, LeftOut& left_out) {
  fed::RunEvaluation changes;
  if (!flags.tasks.empty()) changes.tasks = flags.tasks;
  if (!flags.budgets.empty()) changes.budgets = flags.budgets;
  changes.limit = flags.limit;
  changes.base = flags.base;
  changes.best = flags.best;
  changes.journal = flags.journal;
  changes.predictions = !flags.predictions.empty();
  changes.on_inputs = [&flags](std::vector<fs::path> files) { check_outputs_apart(flags, std::move(files)); };
  if (asks_for_files(flags.tasks))
    changes.on_left_out = [&left_out](int64_t count, const std::string& note) { left_out.add(count, note); };
  const auto decode = decode_of(flags);
  const auto form = form_of(flags);
  const auto dtype = parse_enum<models::BaseDtype>("--dtype", flags.model.dtype);
  changes.adjust = [=, &left_out](fed::ExperimentConfig& config) {
    if (decode) config.evaluate.decode = *decode;
    if (form) config.data.form = *form;
    if (flags.chat_template) config.data.chat_template = *flags.chat_template;
    if (flags.date) config.data.date = jinja::Date::settled(*flags.date);
    if (dtype_given) config.model.dtype = dtype;
    if (flags.in_the_run_only) config.evaluate.as_exported = false;
    if (flags.seed) config.seed = *flags.seed;
    if (flags.model.threads > 0) config.threads = flags.model.threads;
    fed::compute_on(config.model, flags.model.device);
    if (flags.batch_size) config.evaluate.batch_size = *flags.batch_size;
    if (flags.max_new_tokens) config.evaluate.max_new_tokens = *flags.max_new_tokens;
    if (!flags.bert_score.encoder.empty()) config.evaluate.bert_score = flags.bert_score;
    if (asks_for_files(flags.tasks) && !flags.data.empty()) score_files(flags, config);
    lead_to_rows(flags, config);
    count_left_out(flags, config, left_out);
  };
  return changes;
}

void score_all(const EvaluateFlags& flags, bool dtype_given, ScoreWriter& writer, LeftOut& left_out) try {
  events::start();
  if (flags.run.empty()) return evaluate_model(flags, writer, left_out);
  fed::evaluate_run(
      flags.run, changes_of(flags, dtype_given, left_out),
      [&](const std::string& task, double budget, int64_t done, int64_t rows) {
        writer.progress(task, budget, done, rows);
      },
      [&](const fed::Scored& scored) { writer.score(scored.score, scored.predictions); });
} catch (const std::ios_base::failure&) {
  if (!reader_gone()) throw;
  writer.stop("nobody reads standard output any more");
}

void run_evaluate(const EvaluateFlags& flags, const CLI::App& command) {
  EK_CHECK(flags.run.empty() || command.count("--gate-norm") == 0, kConfig,
           "--run brings its own: --gate-norm goes with --model");
  if (wants_events(flags.progress)) events::begin("evaluate");
  check(flags);
  watch_interrupts();
  ScoreWriter writer(flags);
  LeftOut left_out;
  score_all(flags, command.count("--dtype") > 0, writer, left_out);
  writer.finish();
  left_out.finish();
  events::write("done", {{"exit_code", 0}});
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

void add_evaluate_command(CLI::App& program) {
  auto flags = std::make_shared<EvaluateFlags>();
  auto* command =
      program.add_subcommand("evaluate", "accuracy by generation and by likelihood, at one or more budgets");
  command->footer(
      "Example: evenkeel evaluate --run runs/demo --tasks builtin --budget 0.125,1\n"
      "         evenkeel evaluate --model models/OLMoE-1B-7B-0924 --tasks arc_c,boolq --data data/commonsense --limit "
      "200\n"
      "         evenkeel evaluate --model models/OLMoE-1B-7B-0924 --tasks files --data rows.jsonl --score exact\n\n"
      "Accuracy by generation and by likelihood, with the rate of unreadable answers, chance and the majority answer; "
      "free-text answers by exact match and F1; answers of rows of your own by likelihood too.");
  add_run_flags(*command, *flags);
  flags->model.add_to(*command);
  command
      ->add_option("--tasks", flags->tasks,
                   "tasks or families, comma-separated (evenkeel list tasks; --run: the run's)")
      ->delimiter(',');
  command->add_option("--budget", flags->budgets, "shares of the experts per token, each in (0, 1] (--run: the run's)")
      ->delimiter(',');
  command->add_option("--limit", flags->limit, "rows per task, 0: all");
  command->add_option("--seed", flags->seed, "which rows a limit draws (default 42; --run: the run's)");
  add_row_flags(*command, *flags);
  command->add_option("--template", flags->form, "prompt: paper, llm_adapters, chat or plain (docs/prompts.md)");
  command->add_option("--chat-template", flags->chat_template,
                      "--template chat: a template file in the place of the model's or the run's");
  command->add_option("--date", flags->date,
                      "--template chat: what strftime_now of the template writes, YYYY-MM-DD, with Thh:mm:ss, or today "
                      "(default: the run's)");
  flags->method.add_to(*command, "of a run that was made with it");
  command->add_option("--decode", flags->decode, "greedy, or beam4: beam search of width 4");
  command->add_option("--max-new-tokens", flags->max_new_tokens, "longest answer (default 32; --run: the run's)");
  command->add_option("--batch-size", flags->batch_size, "prompts run together (default 128)");
  add_bert_flags(*command, flags->bert_score);
  command->add_option("--journal", flags->journal,
                      "file that keeps what is answered: the same command, killed, goes on from it");
  command->add_option("--predictions", flags->predictions, "JSON lines file for every output, read and ranked answer");
  command->add_flag("--questions", flags->questions, "also write the text of every question into --predictions");
  command->add_flag("--in-the-run-only", flags->in_the_run_only,
                    "--run: do not also score the exported adapter as other programs route it");
  command->add_flag("--json", flags->json, "one JSON line per task and budget");
  add_progress_flag(*command, flags->progress);
  command->callback([flags, command] { run_evaluate(*flags, *command); });
}

}  // namespace evenkeel::apps
