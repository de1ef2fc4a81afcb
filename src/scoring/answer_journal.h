/// \file  What an evaluation has answered so far, batch by batch, so that one that dies loses seconds: a file of sealed
/// lines (base/plain/sealed.h), one per batch, of any number of evaluations, each under a key of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "scoring/task_score.h"

namespace evenkeel {

/// Rows that went through the model together, and what is known of them before they are scored.
struct AnsweredBatch {
  std::string key;
  int64_t first = 0;  ///< row of the task, or where answers are weighed of its whole rows
  int64_t context_cut = 0;
  double seconds = 0;
  std::vector<Prediction> answers;

  void visit(auto& field) {  // base/format/record.h
    field("key", key);
    field("first", first);
    field("context_cut", context_cut);
    field("seconds", seconds);
    field("answers", answers);
  }
};

class AnswerJournal {
 public:
  /// Reads what is there. A line that was being written, or is damaged, goes with all that follow it.
  explicit AnswerJournal(std::filesystem::path file);

  /// Null where it is not known.
  const AnsweredBatch* find(const std::string& key, int64_t first) const;
  /// Flushed to disk when it returns.
  const AnsweredBatch& add(AnsweredBatch batch);
  /// All of it is scored: the file goes.
  void finish();

 private:
  std::filesystem::path file_;
  std::map<std::pair<std::string, int64_t>, AnsweredBatch> batches_;
};

/// What the journal holds of the batch that begins with `first`; else `make` makes it, in `seconds`, and the journal
/// keeps it. \param journal  null: nothing is kept
AnsweredBatch get_or_compute(AnswerJournal* journal, const std::string& key, size_t first,
                             const std::function<AnsweredBatch()>& make);

/// Moves the batch's answers to the beginning of `rows`. \return how many they were
/// \throws kCheckpoint when there are none, or more than rows.
size_t hand_over(AnsweredBatch& batch, std::span<Prediction> rows);

}  // namespace evenkeel
