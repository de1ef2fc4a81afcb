#include <iostream>
#include <memory>

#include "apps/commands.h"
#include "apps/evaluate_model.h"
#include "apps/output.h"
#include "apps/progress_flag.h"
#include "base/system/events.h"
#include "base/system/interrupt.h"
#include "fed/config/arithmetic.h"
#include "fed/run/state_evaluation.h"

namespace evenkeel::apps {
namespace {

/// Scores the rows of --data in place of the run's, and of those that its clients bring.
void score_files(const EvaluateFlags& flags, fed::ExperimentConfig& config) {
  config.data.files = flags.files();
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
  if (!flags.asks_for_files() || flags.data.empty()) return;
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
  if (flags.asks_for_files())
    changes.on_left_out = [&left_out](int64_t count, const std::string& note) { left_out.add(count, note); };
  const auto decode = flags.decode_rule();
  const auto form = flags.prompt_form();
  const auto dtype = parse_enum<models::BaseDtype>("--dtype", flags.model.dtype);
  changes.adjust = [=, &left_out](fed::ExperimentConfig& config) {
    if (decode) config.evaluate.decode = *decode;
    if (form) config.data.form = *form;
    check_chat_flags(flags.chat_template.has_value(), flags.date.has_value(), config.data.form);
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
    if (flags.asks_for_files() && !flags.data.empty()) score_files(flags, config);
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
  flags.check();
  watch_interrupts();
  ScoreWriter writer(flags);
  LeftOut left_out;
  score_all(flags, command.count("--dtype") > 0, writer, left_out);
  writer.finish();
  left_out.finish();
  events::write("done", {{"exit_code", 0}});
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
  flags->add_to(*command);
  command->callback([flags, command] { run_evaluate(*flags, *command); });
}

}  // namespace evenkeel::apps
