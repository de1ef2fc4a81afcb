#include "apps/evaluate_model.h"

#include <optional>

#include "apps/answers_of.h"
#include "base/format/fingerprint.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "fed/config/arithmetic.h"
#include "fed/store/model_files.h"
#include "scoring/answer_journal.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::apps {
namespace {

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

std::vector<LoadedTask> load_tasks(const EvaluateFlags& flags) {
  data::RowOptions from{.limit = flags.limit.value_or(0),
                        .seed = static_cast<uint64_t>(flags.seed.value_or(42)),
                        .form = flags.prompt_form().value_or(data::PromptTemplate::kPaper)};
  if (flags.asks_for_files() && !flags.data.empty()) from.files = flags.files();
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
    auto key = flags.journal.empty() ? "" : apps::key_of(task, set.rows);
    tasks.push_back({scoring::PreparedTask(task, std::move(set), tokenizer, shape->spec(), options), std::move(key)});
    scoring::check_task(*shape, tasks.back().task, options);
  }
  return tasks;
}

}  // namespace

void evaluate_model(const EvaluateFlags& flags, ScoreWriter& writer, LeftOut& left_out) {
  const scoring::EvaluationOptions defaults;
  auto loaded = load_tasks(flags);
  for (const auto& one : loaded) left_out.add(one.set.left_out, one.set.note);
  std::optional<scoring::BertScorer> scorer;
  if (!flags.bert_score.encoder.empty())
    scorer = scoring::BertScorer::load(flags.bert_score.encoder, flags.bert_score, storage_on(flags.model.device));
  scoring::EvaluationOptions options{.form = flags.prompt_form().value_or(defaults.form),
                                     .decode = flags.decode_rule().value_or(defaults.decode),
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

}  // namespace evenkeel::apps
