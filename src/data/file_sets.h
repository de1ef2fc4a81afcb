/// \file  `[data.files]`: sets of rows of people's own, and how each is scored. Read by tasks/files.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/format/config_table.h"
#include "data/row_files.h"

namespace evenkeel {

/// How an answer is compared with what a row says.
enum class Scoring {
  kChoice,  ///< one of the allowed answers: read from generated text, and ranked by likelihood
  kF1,      ///< in any words: exact match and F1 of words, both as SQuAD's scripts count them
  kExact,   ///< the same, but a match is one to the letter, white space around it aside
  kNll,     ///< nothing is generated: mean negative log-likelihood of the answers' tokens, and perplexity
};
constexpr auto names(Scoring) {
  return std::array{config::EnumName<Scoring>{"choice", Scoring::kChoice},
                    config::EnumName<Scoring>{"f1", Scoring::kF1}, config::EnumName<Scoring>{"exact", Scoring::kExact},
                    config::EnumName<Scoring>{"nll", Scoring::kNll}};
}

struct FileSet {
  std::vector<std::string> train, test;
  double held_out = 0.1;
  int64_t split_seed = 42;
  RowFormat format = RowFormat::kAuto;
  bool strict = true;
  Scoring score = Scoring::kF1;
  std::vector<std::string> options;
  std::string label;
  void visit(auto& field) {
    field("train", train, "JSON or JSON lines files to train on, and globs; $EVENKEEL_DATA/ at the start is replaced");
    field("test", test, "files to test with; empty: held_out of the training rows");
    field("held_out", held_out, "share of the training rows kept for testing where test is empty, in [0, 1)");
    field("split_seed", split_seed, "which rows are held out, 0 or more; rows that ask the same stay together");
    field("format", format,
          "alpaca, dolly, messages, sharegpt, prompt_completion or text (docs/your-data.md); auto: as each file's "
          "first row");
    field("strict", strict, "a row that cannot be read ends the run with its line; false: it is left out and counted");
    field("score", score, "f1 or exact (free text), choice (one of the options), nll (likelihood, nothing generated)");
    field("options", options, "choice: the answers of rows that have no options of their own");
    field("label", label, "key of a row that partition.key = \"label\" groups by; empty: the set's name");
  }
  void resolve(const config::Table& table) const;
  bool tests() const { return !test.empty() || (held_out > 0 && !train.empty()); }
};

/// What one client brings.
struct ClientFiles : FileSet {
  std::string who;  ///< in front of what is wrong with it
};

/// One set in `[data.files]` itself, or several in `[data.files.NAME]`, which the keys of `[data.files]` are then the
/// defaults of.
struct FilesConfig : FileSet {
  std::map<std::string, FileSet> sets;
  /// Where clients bring rows of their own, as their tables say (fed/config/experiment_config.h): the rows of all of
  /// them, one client's after the other's, are those of the task "files".
  std::vector<ClientFiles> clients;
  void visit(auto& field) {
    FileSet::visit(field);
    field.tables(sets, static_cast<const FileSet&>(*this));
  }
  void resolve(const config::Table& table) const;
  /// Each set under the name of its task: "files", or "files:NAME". Empty when there are no files.
  std::map<std::string, FileSet> by_task() const;
  /// Replaces what every pattern begins with, see expand_data_path().
  void expand_paths();
  /// Replaces every pattern by the files it stands for.
  void find_files();
};

}  // namespace evenkeel
