#include "apps/training_preview.h"

#include <array>
#include <iostream>
#include <optional>
#include <set>
#include <span>

#include "base/plain/error.h"
#include "base/plain/json.h"
#include "base/plain/text.h"
#include "data/prompt.h"
#include "fed/config/client_rows.h"
#include "fed/config/config_paths.h"
#include "fed/run/make_experiment.h"

namespace evenkeel::apps {
namespace {

/// Returns the positions of the ids that the loss predicts.
std::vector<int64_t> targets_of(const data::Example& example) {
  std::vector<int64_t> targets;
  auto gap = example.between.begin();
  for (int64_t i = example.first_target; i < std::ssize(example.ids); ++i) {
    if (gap != example.between.end() && i == gap->begin) i = (gap++)->end;
    if (i < std::ssize(example.ids)) targets.push_back(i);
  }
  return targets;
}

/// One row as training sees it.
struct SeenRow {
  std::string place;                       ///< file and line, or the number of a generated row
  const data::Example* example = nullptr;  ///< null: the row is left out
  std::string fault{};                     ///< why it cannot be tokenised; empty if it can
  bool cut = false, windowed = false, last_only = false;
};

/// Prints the rows of one run.
class Preview {
 public:
  Preview(const fed::Experiment& run, const PreviewOptions& options)
      : config_(run.server.config),
        shards_(run.fabric.shards),
        tokenizer_(run.fabric.context.tokenizer),
        tokenize_(config_->data.tokenize_options(run.server.model.end_of_text)),
        options_(options) {}

  void print() const {
    bool found = false;
    std::set<int64_t> used;
    for (int64_t id = 0; id < config_->clients.count; ++id) {
      if (!is_asked_for(id)) continue;
      found = true;
      print_client(id, used);
    }
    EK_CHECK(found, kConfig, "--client is ", shown(options_.client), ", allowed: a name or a number below ",
             config_->clients.count);
    if (!config_->clients.own_rows() && options_.client.empty()) print_left_out(0, used);
  }

 private:
  bool is_asked_for(int64_t id) const {
    return options_.client.empty() || options_.client == std::to_string(id) ||
           options_.client == config_->clients.name(id);
  }

  /// Returns the rows of which the client's are some. Rows that all clients share are read once.
  const data::TaskRows& training_set(int64_t client) const {
    const int64_t owner = config_->clients.own_rows() ? client : 0;
    if (!set_ || owner_ != owner) set_ = fed::training_set(config_, owner);
    owner_ = owner;
    return *set_;
  }

  /// \param used  receives the rows of the training set that the client has
  void print_client(int64_t id, std::set<int64_t>& used) const {
    const auto i = static_cast<size_t>(id);
    const auto& set = training_set(id);
    const auto& rows = shards_.indices[i];
    std::set<int64_t> own(rows.begin(), rows.end());
    for (size_t k = 0; k < rows.size() && (options_.rows == 0 || k < static_cast<size_t>(options_.rows)); ++k)
      print_row(id, seen(set, rows[k], &shards_.examples[i][k]));
    if (config_->clients.own_rows()) print_left_out(id, own);
    used.merge(own);
  }

  /// Prints the rows of a training set that no example was made of.
  void print_left_out(int64_t client, const std::set<int64_t>& used) const {
    const auto& set = training_set(client);
    for (int64_t row = 0; row < std::ssize(set.rows); ++row)
      if (!used.contains(row)) print_row(client, seen(set, row, nullptr));
  }

  /// Tokenises a row again, alone, to find what was cut. \throws kInternal if that gives other ids than training has
  SeenRow seen(const data::TaskRows& set, int64_t index, const data::Example* example) const {
    const auto& row = set.rows.at(static_cast<size_t>(index));
    const auto alone = data::tokenize_rows(std::array{row}, tokenizer_, tokenize_);
    EK_CHECK(example == nullptr || alone.examples.at(0).ids == example->ids, kInternal, "row ", index,
             " is tokenised otherwise alone");
    return {.place = row.origin.empty() ? concat("row ", index) : row.origin,
            .example = example,
            .fault = alone.first_fault,
            .cut = alone.cut > 0,
            .windowed = alone.windowed > 0,
            .last_only = alone.last_only > 0};
  }

  void print_row(int64_t client, const SeenRow& row) const {
    options_.json ? print_json(client, row) : print_text(client, row);
  }

  std::string text_of(std::span<const int64_t> ids) const { return tokenizer_.decode(ids); }

  std::string token_of(int64_t id) const { return id < tokenizer_.vocab_size() ? tokenizer_.id_to_token(id) : ""; }

  void print_json(int64_t client, const SeenRow& row) const {
    OrderedJson line{{"client", client}, {"row", row.place}};
    if (row.example != nullptr) {
      line["text"] = text_of(row.example->ids);
      line["ids"] = row.example->ids;
      line["tokens"] = OrderedJson::array();
      for (const int64_t id : row.example->ids) line["tokens"].push_back(token_of(id));
      line["targets"] = targets_of(*row.example);
    }
    line["left_out"] = row.example == nullptr;
    line["cut"] = row.cut;
    line["context_cut"] = row.windowed;
    line["last_answer_only"] = row.last_only;
    std::cout << line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
  }

  void print_text(int64_t client, const SeenRow& row) const {
    std::cout << row.place << ", " << config_->clients.who(client) << ": ";
    if (row.example == nullptr) {
      const auto lost = concat("no token of its answer is within data.cutoff = ", config_->data.cutoff);
      std::cout << "left out, " << (row.fault.empty() ? lost : row.fault) << "\n\n";
      return;
    }
    const auto targets = targets_of(*row.example);
    std::cout << row.example->ids.size() << " tokens, " << targets.size() << " of them targets"
              << (row.windowed ? ", context cut"
                  : row.cut    ? ", cut"
                               : "")
              << (row.last_only ? ", last answer only" : "") << '\n';
    print_runs(row.example->ids, targets);
    std::cout << '\n';
  }

  /// Prints consecutive tokens that are all targets, or all not, as one text with its ids.
  void print_runs(std::span<const int64_t> ids, std::span<const int64_t> targets) const {
    const std::set<int64_t> is_target(targets.begin(), targets.end());
    for (size_t begin = 0; begin < ids.size();) {
      const bool target = is_target.contains(static_cast<int64_t>(begin));
      size_t end = begin + 1;
      while (end < ids.size() && is_target.contains(static_cast<int64_t>(end)) == target) ++end;
      const auto run = ids.subspan(begin, end - begin);
      std::cout << (target ? "  target  " : "  given   ")
                << Json(text_of(run)).dump(-1, ' ', false, Json::error_handler_t::replace) << "\n          "
                << Json(std::vector(run.begin(), run.end())).dump() << '\n';
      begin = end;
    }
  }

  const fed::RunConfig& config_;
  const fed::Shards& shards_;
  const tokenizer::Tokenizer& tokenizer_;
  data::TokenizeOptions tokenize_;
  const PreviewOptions& options_;
  mutable std::optional<data::TaskRows> set_;
  mutable int64_t owner_ = 0;
};

}  // namespace

void print_training_examples(const fed::ExperimentConfig& asked, const PreviewOptions& options) {
  const auto config = fed::settle(fed::with_inputs(asked), {.threads = 1, .products = {}});
  const auto run = fed::make_experiment(config, fed::Purpose::kDryRun);
  Preview(run, options).print();
}

}  // namespace evenkeel::apps
