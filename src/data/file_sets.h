/// \file  Defines the config section `[data.files]`: sets of the user's own rows and how each set is scored. The task
/// family "files" (tasks/file_task.cpp) uses it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/format/config_table.h"
#include "data/row_files.h"

namespace evenkeel::data {

/// Selects how an answer is compared with the answers of a row.
enum class Scoring {
  /// The answer is one of the allowed ones. It is extracted from generated text, and also ranked by likelihood.
  kChoice,
  kF1,     ///< free text, scored with SQuAD's exact match and word F1
  kExact,  ///< free text, scored as kF1, but exact match compares all characters except surrounding white space
  kNll,    ///< nothing is generated; scored by mean negative log-likelihood of the answer tokens and by perplexity
};
constexpr auto names(Scoring) {
  return std::array{config::EnumName<Scoring>{"choice", Scoring::kChoice},
                    config::EnumName<Scoring>{"f1", Scoring::kF1}, config::EnumName<Scoring>{"exact", Scoring::kExact},
                    config::EnumName<Scoring>{"nll", Scoring::kNll}};
}

/// One set of rows. visit() documents the keys.
struct FileSet {
  std::vector<std::string> train, test;
  double held_out = 0.1;
  int64_t split_seed = 42;
  RowFormat format = RowFormat::kAuto;
  bool strict = true;
  Scoring score = Scoring::kF1;
  std::vector<std::string> options, ignore;
  std::string label;
  void visit(auto& field) {
    field("train", train, "JSON or JSON Lines files to train on, or globs; $EVENKEEL_DATA/ at the start is replaced");
    field("test", test, "files to test on, or globs; empty: the share held_out of the training rows");
    field("held_out", held_out, "share of the training rows kept for testing if test is empty, in [0, 1)");
    field("split_seed", split_seed,
          "seed of the choice of held-out rows, 0 or more; rows with the same question stay together");
    field("format", format,
          "format of the rows: alpaca, dolly, messages, sharegpt, prompt_completion, text (docs/your-data.md), or auto "
          "(by each file's first row)");
    field("strict", strict,
          "a row that cannot be read ends the run with its line number; false: it is left out and counted");
    field("score", score,
          "score of answers: f1 or exact (free text), choice (one of the options) or nll (likelihood, without "
          "generation)");
    field("options", options, "score = \"choice\" only: answers allowed for rows without options of their own");
    field("ignore", ignore, "keys of the rows that are left out on purpose; other keys that would be lost are refused");
    field("label", label, "key of the rows that partition.key = \"label\" groups by; empty: name of the set");
  }
  /// Checks the values. \throws kConfig naming the key.
  void resolve(const config::Table& table) const;
  /// Returns true if the set has test rows: test files, or held-out training rows.
  bool tests() const { return !test.empty() || (held_out > 0 && !train.empty()); }
};

/// The rows of one client.
struct ClientFiles : FileSet {
  std::string who;  ///< prefix of error messages about this client's rows
};

/// The section `[data.files]`: one set in the section itself, or several in `[data.files.NAME]`. In the second case the
/// keys of `[data.files]` are the defaults of the sets.
struct FilesConfig : FileSet {
  /// The sets of `[data.files.NAME]`, by name.
  std::map<std::string, FileSet> sets;
  /// Rows of single clients, from their config tables (fed/config/experiment_config.h). If not empty, the task "files"
  /// consists of the rows of all clients, one client after the other.
  std::vector<ClientFiles> clients;
  void visit(auto& field) {
    FileSet::visit(field);
    field.tables(sets, static_cast<const FileSet&>(*this));
  }
  void resolve(const config::Table& table) const;
  /// Returns each set by the name of its task: "files" or "files:NAME". Empty if no files are named.
  std::map<std::string, FileSet> by_task() const;
};

}  // namespace evenkeel::data
