/// \file  Defines the forms of training data: rows of a task, tokenised examples and packed batches. Dimension names: T
/// tokens of a packed batch, R rows (of hidden states) that the model computes, B sequences, N targets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace evenkeel::data {

/// One message of a conversation.
struct Turn {
  std::string role, content;  ///< role, and text of the content; several parts are concatenated
  /// For an assistant's turn, false excludes it from the loss: its weight is 0 or it is part of a prompt.
  bool is_target = true;
  jinja::Value message{};  ///< all keys, for the chat template; undefined if the message has role and content only
  std::string more{};      ///< `message` as JSON, used to compare rows; empty if it says no more than role and text
};

/// Where a row was read.
struct RowPlace {
  std::shared_ptr<const std::string> file{};  ///< path of the file; null for a generated row
  /// Number of the row in the file, 0 is the first: its index in a JSON list, among the lines that are not empty, or
  /// among the questions of a TeleQuAD file. Unreadable rows are counted too. Generated row: its number in the set.
  int64_t row = -1;
};

/// One row of a task, in the LLM-Adapters format. `input` is the context; it is empty in the commonsense files.
/// `output` is the text that is trained; `answer` is the correct answer that scoring compares with.
struct Row {
  std::string instruction, input, output, answer;
  /// Group for partitions: the kind of task, a document or a specification. Empty if there is none.
  std::string label{};
  /// Allowed answers of a multiple-choice row. If empty, the task or the instruction defines them.
  std::vector<std::string> options{};
  std::vector<std::string> references{};  ///< free text: accepted answers
  /// Turns of a conversation. The last turn is an assistant's and its text is also `output`; `instruction` and `input`
  /// are empty. Empty for a row that is no conversation.
  std::vector<Turn> turns{};
  std::vector<std::pair<std::string, jinja::Value>> variables{};  ///< of a conversation: template variables such as
                                                                  ///< tools and documents
  std::string variables_json{};                                   ///< `variables` as JSON; empty if there are none
  /// Byte of `input` where the output begins, or blanks before it (in published files); -1: it is not in `input`.
  int64_t answer_at = -1;
  /// Place of a row of a user's file, "a.jsonl:17", for messages; else empty.
  std::string origin{};
  RowPlace place{};  ///< set by data::training_rows() and data::test_rows()
  /// False: the row is left out if it cannot be tokenised, or if its question does not fit into the model.
  bool is_required = true;
};

/// Returns the parts of the row that form the question, context included. The views point into `row`.
std::vector<std::string_view> question_of(const Row& row);
/// Returns the question in a form that does not depend on the format of the row. Two rows ask the same question if the
/// results are equal: a text, a text with its context after an empty line, and a user's only message with the same text
/// are one question. A row that asks nothing has its output in place of a question. The views point into `row`, or are
/// constants.
std::vector<std::string_view> comparable_question(const Row& row);
/// Returns "first\n\nsecond", or the text that is not empty.
std::string blocks(std::string_view first, std::string_view second);
/// Returns the question as text: instruction and context, or the content of the turns before the answer, separated by
/// empty lines.
std::string question_text(const Row& row);

/// The half-open range [begin, end) of positions in a sequence.
struct IdSpan {
  int64_t begin = 0, end = 0;
  bool operator==(const IdSpan&) const = default;
};

/// A tokenised row. Position i predicts ids[i + 1]. The targets of the loss are the ids from index `first_target` on,
/// except those in `between`.
struct Example {
  std::vector<int64_t> ids;
  int64_t first_target = 1;  ///< index of the first target, >= 1; ids.size() if there is none
  /// Ranges without targets, between the answers of a conversation and after the last one. They are disjoint, ascending
  /// and not before first_target. Empty for a row with one answer.
  std::vector<IdSpan> between{};
  /// Returns the number of targets.
  int64_t targets() const;
};

/// Returns the number of tokens of all examples.
int64_t tokens_in(std::span<const Example> examples);

/// Number of tokens and targets of a packed batch up to the end of a micro-batch.
struct MicroBatchEnd {
  int64_t tokens = 0, targets = 0;
};

/// Sequences concatenated without padding. Attention is causal within each sequence. The model computes R rows: one per
/// token, or, with prefix sharing, one for all tokens with the same tokens before them.
struct PackedBatch {
  at::Tensor ids;  ///< [R] int64, token of each row
  /// [R] int64, position within the sequence (when generating: plus the cached length).
  at::Tensor positions;
  std::vector<int64_t> offsets;  ///< [B + 1] starts of the sequences, in tokens; the last is T
  /// [T] int64, row of each token, numbered in order of first appearance. Undefined if row and token index are the
  /// same.
  at::Tensor rows_T{};
  /// [N] int64, row in [0, R) that predicts each target. With prefix sharing a row may predict several targets.
  at::Tensor target_rows;
  at::Tensor targets;  ///< [N] int64, token ids
  /// End of each micro-batch, in order. Empty if the batch is a single micro-batch.
  std::vector<MicroBatchEnd> ends{};
  /// Returns T.
  int64_t tokens() const { return offsets.empty() ? 0 : offsets.back(); }
  /// Returns B.
  int64_t sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  /// Returns `ends`, or the end of the batch if `ends` is empty.
  std::vector<MicroBatchEnd> micro_batch_ends() const;
};

/// Packs examples in the given order, one row per token. \param micro_batch  examples per micro-batch; 0: all.
/// \throws kInternal when an example is empty or the number of examples is not a multiple of `micro_batch`.
PackedBatch pack(std::span<const Example* const> examples, int64_t micro_batch = 0);
PackedBatch pack(std::span<const Example> examples, int64_t micro_batch = 0);

/// Packs examples with prefix sharing if it saves at least 1/16 of the T rows; otherwise packs them as pack() does.
/// \throws as pack()
PackedBatch pack_shared(std::span<const Example* const> examples, int64_t micro_batch = 0);
PackedBatch pack_shared(std::span<const Example> examples, int64_t micro_batch = 0);

/// Packs token sequences for scoring or pre-training: every token except the first of a sequence is a target.
/// \throws kInternal when a sequence is empty
PackedBatch pack_ids(std::span<const std::vector<int64_t>> sequences);

}  // namespace evenkeel::data
