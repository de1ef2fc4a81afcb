/// \file  Stores the answers of evaluations batch by batch, so that an interrupted evaluation continues after the last
/// batch. The file has one sealed line (base/plain/sealed.h) per batch. It may serve several evaluations, each with its
/// own key.
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

namespace evenkeel::scoring {

/// Answers of the rows of one batch, before they are scored.
struct AnsweredBatch {
  std::string key;  ///< identifies the evaluation
  /// Index of the batch's first row. For Scoring::kNll the index counts only rows that keep an answer after truncation.
  int64_t first = 0;
  int64_t context_cut = 0;  ///< number of rows whose context was truncated
  double seconds = 0;       ///< time that the answers took
  std::vector<Prediction> answers;

  void visit(auto& field) {  // base/format/record.h
    field("key", key);
    field("first", first);
    field("context_cut", context_cut);
    field("seconds", seconds);
    field("answers", answers);
  }
};

/// A journal of answered batches in a file.
class AnswerJournal {
 public:
  /// Reads the file. The first incomplete or damaged line and all later lines are removed from it.
  explicit AnswerJournal(std::filesystem::path file);

  /// Returns the batch that begins with row `first`, or null if the journal does not have it.
  const AnsweredBatch* find(const std::string& key, int64_t first) const;
  /// Appends a batch and flushes it to disk. Returns the stored batch, which is valid as long as the journal.
  const AnsweredBatch& add(AnsweredBatch batch);
  /// Removes the file. Call it when all answers are scored.
  void finish();

 private:
  std::filesystem::path file_;
  std::map<std::pair<std::string, int64_t>, AnsweredBatch> batches_;
};

/// Checks that a file can be a journal: it does not exist, is empty, or begins as a journal does. The file is not
/// changed.
/// \throws kData naming a file that is no journal; kIo when it cannot be read
void check_journal(const std::filesystem::path& file);

/// Returns the journal's batch that begins with row `first`. If there is none, it calls `make`, measures the time, and
/// adds the batch to the journal.
/// \param journal  null: always calls `make`, and stores nothing
AnsweredBatch get_or_compute(AnswerJournal* journal, const std::string& key, size_t first,
                             const std::function<AnsweredBatch()>& make);

/// Moves the batch's answers to the beginning of `rows`.
/// \return the number of answers
/// \throws kCheckpoint when the batch has no answers, or more than `rows` can hold
size_t hand_over(AnsweredBatch& batch, std::span<Prediction> rows);

}  // namespace evenkeel::scoring
