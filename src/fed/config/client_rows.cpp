#include "fed/config/client_rows.h"

#include <algorithm>
#include <unordered_map>

#include "base/plain/log.h"
#include "base/system/error_context.h"
#include "base/system/machine.h"
#include "data/file_identity.h"
#include "data/left_out_rows.h"

namespace evenkeel::fed {
namespace {

void warn_about_cut_rows(const data::TokenizedRows& tokenized, size_t rows, int64_t cutoff) {
  if (tokenized.cut == 0) return;
  log::warning("[data] ", tokenized.cut, " of ", rows, " rows are longer than data.cutoff = ", cutoff, " tokens; ",
               tokenized.windowed, " of them keep a window of their context: tokenize --config shows them");
}

void warn_about_rows_without_answer(const data::TokenizedRows& tokenized, size_t rows, int64_t cutoff) {
  if (tokenized.without_target == 0) return;
  log::warning("[data] ", tokenized.without_target, " of ", rows,
               " rows have no token of an answer within data.cutoff = ", cutoff,
               " tokens and are left out: tokenize --config shows them");
}

void warn_about_conversations(const data::TokenizedRows& tokenized, size_t rows) {
  if (tokenized.last_only == 0) return;
  log::warning("[data] ", tokenized.last_only, " of ", rows,
               " rows train on their last answer alone: the chat template ",
               "writes earlier answers otherwise than the last one (docs/prompts.md): tokenize --config shows them");
}

/// Returns the labels by which a partition groups rows.
std::vector<std::string> labels_of(std::span<const data::Row> rows, const data::TokenizedRows& tokenized) {
  std::vector<std::string> labels;
  for (int64_t row : tokenized.rows) labels.push_back(rows[static_cast<size_t>(row)].label);
  return labels;
}

/// Numbers files in the order in which they are first added.
class FileNumbers {
 public:
  void add(std::span<const std::string> files) {
    for (const auto& file : files)
      if (numbers_.emplace(file, files_.size()).second) files_.push_back(file);
  }
  const std::vector<std::string>& files() const { return files_; }
  FileRow row_of(const data::RowPlace& place) const {
    const auto found = place.file ? numbers_.find(*place.file) : numbers_.end();
    return found == numbers_.end() ? FileRow{.row = place.row} : FileRow{found->second, place.row};
  }
  std::vector<FileRow> rows_of(std::span<const data::RowPlace> places) const {
    std::vector<FileRow> rows;
    for (const auto& place : places) rows.push_back(row_of(place));
    return rows;
  }

 private:
  std::vector<std::string> files_;
  std::unordered_map<std::string, size_t> numbers_;
};

/// \param rows  the rows that were tokenized
void deal_out(data::TokenizedRows tokenized, std::span<const data::Row> rows,
              std::span<const std::vector<int64_t>> parts, const FileNumbers& files, Shards& shards) {
  for (const auto& part : parts) {
    auto& examples = shards.examples.emplace_back();
    auto& numbers = shards.rows.emplace_back();
    auto& indices = shards.indices.emplace_back();
    for (int64_t index : part) {
      const auto i = static_cast<size_t>(index);
      examples.push_back(std::move(tokenized.examples[i]));
      numbers.push_back(files.row_of(rows[static_cast<size_t>(tokenized.rows[i])].place));
      indices.push_back(tokenized.rows[i]);
    }
  }
}

void check_positions(const RunConfig& config, const models::ModelSpec& model) {
  EK_CHECK(config->data.cutoff <= model.max_positions, kConfig, "data.cutoff is ", config->data.cutoff,
           " tokens, the model has ", model.max_positions, " positions");
}

/// Checks that generated rows fit into memory. (Rows that are read are limited by their files.)
void check_generated_rows(const DataSection& data) {
  constexpr int64_t kRowBytes = 4096;  // text, its tokens, and what both are made from
  const auto available = machine::memory().available;
  const bool generates = std::any_of(data.task.begin(), data.task.end(),
                                     [](const auto& name) { return data::find_task_family(name).generates; });
  EK_CHECK(!generates || data.limit * kRowBytes <= available, kConfig, "data.limit is ", data.limit,
           " rows to generate, about ", machine::bytes_text(data.limit * kRowBytes), " of memory, allowed: up to ",
           available / kRowBytes, ", ", machine::bytes_text(available), " are available");
}

/// Rows as read, and tokenized.
struct ReadRows {
  data::TaskRows set;
  data::TokenizedRows tokenized;
};

/// Returns the number of rows that could not be read or tokenised.
int64_t count_left_out(const data::TaskRows& set, const data::TokenizedRows& tokenized) {
  return set.left_out + std::ssize(tokenized.left_out);
}

/// Tokenizes rows and warns about those that are cut or left out. \param who  prefix of warnings; empty: no client's
/// \throws kData if no row is left
ReadRows read_rows(data::TaskRows set, const RunConfig& config, const tokenizer::Tokenizer& tokenizer,
                   const models::ModelSpec& model, const std::string& who) {
  if (!set.note.empty()) log::warning("[data] ", who, set.note);
  auto tokenized = data::tokenize_rows(set.rows, tokenizer, config->data.tokenize_options(model.end_of_text));
  EK_CHECK(!tokenized.examples.empty(), kData,
           data::why_no_example(tokenized, concat("data.cutoff = ", config->data.cutoff, " tokens")));
  data::warn_once("[data] ", tokenized.note);
  warn_about_cut_rows(tokenized, set.rows.size(), config->data.cutoff);
  warn_about_rows_without_answer(tokenized, set.rows.size(), config->data.cutoff);
  warn_about_conversations(tokenized, set.rows.size());
  return {std::move(set), std::move(tokenized)};
}

void add_client(ReadRows read, FileNumbers& files, Shards& shards) {
  auto& [set, tokenized] = read;
  files.add(set.files);
  auto& numbers = shards.rows.emplace_back();
  for (const int64_t row : tokenized.rows) numbers.push_back(files.row_of(set.rows[static_cast<size_t>(row)].place));
  for (const auto& row : files.rows_of(set.held_out)) shards.held_out.push_back(row);
  shards.indices.push_back(std::move(tokenized.rows));
  shards.examples.push_back(std::move(tokenized.examples));
  shards.cut += tokenized.cut;
  shards.without_target += tokenized.without_target;
  shards.left_out += count_left_out(set, tokenized);
  shards.files_of.push_back(std::move(set.files));
}

void add_absent_client(Shards& shards) {
  shards.rows.emplace_back();
  shards.indices.emplace_back();
  shards.examples.emplace_back();
  shards.files_of.emplace_back();
}

/// Makes shards of clients with own rows. Clients with rows at nodes get empty shards.
Shards own_shards(const RunConfig& config, const tokenizer::Tokenizer& tokenizer, const models::ModelSpec& model) {
  Shards shards;
  FileNumbers files;
  size_t rows = 0;
  for (int64_t id = 0; id < config->clients.count; ++id) {
    const auto who = config->clients.who(id);
    if (config->clients.client[static_cast<size_t>(id)].data.empty()) {
      add_absent_client(shards);
      continue;
    }
    auto set = training_set(config, id);
    rows += set.rows.size();
    in_context(who,
               [&] { add_client(read_rows(std::move(set), config, tokenizer, model, who + ": "), files, shards); });
  }
  shards.files = files.files();
  log::info("[data] ", rows, " rows of ", shards.files.size(), " files that ", config->clients.count, " clients bring");
  return shards;
}

std::vector<double> budgets_of(const RunConfig& config) {
  std::vector<double> budgets;
  for (const auto& plan : config.plans()) budgets.push_back(plan.budget);
  return budgets;
}

/// Makes shards from the rows of `[data]`, divided among the clients.
Shards dealt_shards(const RunConfig& config, const tokenizer::Tokenizer& tokenizer, const models::ModelSpec& model) {
  const auto seed = static_cast<uint64_t>(config->seed);
  auto all = training_set(config, /*client=*/0);
  if (!all.read.empty()) log::info("[data] ", all.read);
  auto [set, tokenized] = read_rows(std::move(all), config, tokenizer, model, "");
  const auto parts = data::partition(labels_of(set.rows, tokenized), budgets_of(config), config->data.partition, seed);
  FileNumbers files;
  files.add(set.files);
  Shards shards{.examples = {},
                .rows = {},
                .held_out = files.rows_of(set.held_out),
                .files = set.files,
                .files_of = {},
                .cut = tokenized.cut,
                .without_target = tokenized.without_target,
                .left_out = count_left_out(set, tokenized)};
  deal_out(std::move(tokenized), set.rows, parts, files, shards);
  return shards;
}

}  // namespace

ExperimentConfig without_rows(ExperimentConfig config) {
  if (!config.clients.own_rows()) return config;
  for (auto& client : config.clients.client) {
    client.data = {std::string(kRowsElsewhere)};
    client.test = {};
  }
  return config;
}

void check_rows_of_nodes(const ExperimentConfig& config) {
  if (config.clients.own_rows()) return;
  for (const auto& name : config.data.task) {
    const auto& family = data::find_task_family(name);
    EK_CHECK(family.generates || family.in_folder, kConfig, "data.task is \"", name,
             "\", whose rows are files that the config names, and a node reads none but its own: write a ",
             "[[clients.client]] with `data` for every client");
  }
}

data::TaskRows training_set(const RunConfig& config, int64_t client) {
  const int64_t limit = config->data.limit;
  if (config->clients.own_rows()) return data::training_rows("files", config.own_rows(client, limit));
  return data::training_rows(config->data.task, config.rows(limit));
}

void check_rows_train_once(const Shards& shards, std::string_view where) {
  data::KnownFiles known;
  const auto check = [&](const std::vector<std::string>& files) {
    for (const auto& file : files) {
      const auto same = known.with_content_of(file);
      EK_CHECK(!same, kData, file, same == file ? " is there twice" : concat(" is a copy of ", same.value_or("")),
               ": its rows would train twice, allowed ", where, ": every file once");
      known.add(file);
    }
  };
  if (shards.files_of.empty()) check(shards.files);
  for (const auto& files : shards.files_of) check(files);
}

Shards make_shards(const RunConfig& config, const tokenizer::Tokenizer& tokenizer, const models::ModelSpec& model) {
  check_positions(config, model);
  check_generated_rows(config->data);
  auto shards =
      config->clients.own_rows() ? own_shards(config, tokenizer, model) : dealt_shards(config, tokenizer, model);
  if (config->privacy.unit == PrivacyUnit::kExample) check_rows_train_once(shards, "where privacy.unit is \"example\"");
  return shards;
}

}  // namespace evenkeel::fed
