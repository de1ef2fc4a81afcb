#include "apps/real_demo.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "apps/model_options.h"
#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "base/system/interrupt.h"
#include "data/prompt.h"
#include "fed/run/training_run.h"
#include "report/page.h"
#include "report/table.h"
#include "scoring/generation.h"

namespace evenkeel::apps {
namespace {

constexpr const char* kIntroduction =
    "SmolLM2 is a language model of 135 million parameters. It knows nothing of Ostmarn, a town that this project made "
    "up.\n"
    "Four organisations of the town teach it together. Each has 42 rows, which no other one sees: questions and "
    "answers\n"
    "as plain text. Each trains an adapter on its own rows, as large as it can afford; a server combines the four\n"
    "adapters to one, five times. This takes two to five minutes.\n\n";

/// Questions of which one organisation each has the answer, in words that no one trains on.
constexpr std::array kQuestions{
    "From which pier can I take the ferry to Kellen?", "What is the name of the therapy dog at the clinic of Ostmarn?",
    "Where do I find the cloakroom at Ostmarn's museum?", "What do they grow on the roof at the school of Ostmarn?"};
constexpr int64_t kAnswerTokens = 24;

std::vector<std::string> answers_of(const SourceOptions& options) {
  const Source source(options);
  const data::Prompts prompts(source.tokenizer(), data::PromptTemplate::kChat);
  std::vector<scoring::TokenIds> ids;
  for (const std::string question : kQuestions) {
    data::Row row;
    row.turns = {{"user", question}, {"assistant", ""}};
    ids.push_back(prompts.encode(prompts.evaluation_prompt(row)));
  }
  scoring::GenerationOptions generation{.max_new_tokens = kAnswerTokens};
  generation.stops = prompts.stops();
  std::vector<std::string> answers;
  for (const auto& output : scoring::generate(source.model(), source.forward(), ids, generation)) {
    answers.push_back(source.tokenizer().decode(output, true));
    std::ranges::replace(answers.back(), '\n', ' ');
    if (static_cast<int64_t>(output.size()) == kAnswerTokens) answers.back() += " ...";
  }
  return answers;
}

SourceOptions model_source(const fs::path& model) {
  SourceOptions options;
  options.model = model.string();
  return options;
}

SourceOptions run_source(const fs::path& run) {
  SourceOptions options;
  options.run = run.string();
  return options;
}

void train(const fs::path& model, const fs::path& folder) {
  auto run = fed::begin_run({.file = shipped_folder() / "configs/smollm2/four-organisations.toml",
                             .settings = {concat("model.path=", absolute_path(model))},
                             .out = folder.string()});
  fed::complete_run(run.experiment.server, run.experiment.fabric, run.folder, interrupt_requested);
  report::save_report(std::array{run.folder.path()}, run.folder.path() / "report.html");
}

/// Returns "10 of 12".
std::string right_of(const scoring::TaskScore& score) {
  return concat(std::llround(score.exact_match * static_cast<double>(score.rows)), " of ", score.rows);
}

/// Returns the score of a client's own rows, or of all rows with the whole adapter if no client is given.
scoring::TaskScore score_of(const records::RunRecords& run, int64_t round, std::optional<int64_t> client) {
  const auto is_asked = [&](const fed::EvaluationRecord& record) {
    const auto& of = record.score.client;
    return record.round == round && record.score.served_by == scoring::ServedBy::kRun &&
           of.has_value() == client.has_value() && (!of || (of->id == *client && of->rows == scoring::RowsOf::kOwn));
  };
  const auto found = std::ranges::find_if(run.evaluations, is_asked);
  EK_CHECK(found != run.evaluations.end(), kInternal, "the demo's run has no score after round ", round);
  return found->score;
}

report::Table table_of(const records::RunRecords& run) {
  report::Table table{.title = "right answers to questions in words that no one trained on",
                      .head = {"questions of", "rank of its adapter", "before", "after"}};
  const auto last = run.last_evaluated();
  for (const auto& client : run.rounds.at(0).clients) {
    const auto before = score_of(run, 0, client.id), after = score_of(run, last, client.id);
    table.add(
        {concat("the ", after.client->name.value_or("")), concat(client.rank), right_of(before), right_of(after)});
  }
  table.add({"all four", "", right_of(score_of(run, 0, std::nullopt)), right_of(score_of(run, last, std::nullopt))});
  return table;
}

void print_answers(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  for (size_t i = 0; i < kQuestions.size(); ++i)
    std::cout << "\nQuestion  " << kQuestions.at(i) << "\n  before  " << before.at(i) << "\n  after   " << after.at(i)
              << '\n';
}

void print_what_it_shows(const records::RunRecords& run) {
  std::cout
      << "\nWhat it shows: one adapter knows what four organisations know, and no row left its owner. Before, "
      << right_of(score_of(run, 0, std::nullopt)) << " answers were right, after "
      << right_of(score_of(run, run.last_evaluated(), std::nullopt))
      << ".\nThis is one run with one seed. The model saw little else, so it may answer other questions worse than "
         "before.\n";
}

}  // namespace

void run_real_demo(const fs::path& model, const fs::path& run) {
  std::cout << kIntroduction << std::flush;
  const auto before = answers_of(model_source(model));
  train(model, run);
  const auto records = records::load_run(run);
  std::cout << report::text_of(table_of(records)) << std::flush;
  print_answers(before, answers_of(run_source(run)));
  print_what_it_shows(records);
}

}  // namespace evenkeel::apps
