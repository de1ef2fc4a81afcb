/// \file  Rows of a task, tokenised examples, and packed batches: the forms data takes on its way to the model.
/// Dimension names: T tokens of a packed batch on R rows, B sequences, N targets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace evenkeel {

/// One message of a conversation.
struct Turn {
  std::string role, content;  ///< the text of its content; of several parts all, one behind the other
  bool is_target = true;      ///< of an assistant's turn: false where its weight is 0, or where it is part of a prompt
  jinja::Value message{};     ///< all keys, as a template sees them; undefined where role and content are all
  std::string more{};         ///< these as JSON, which tells messages apart; empty where role and content are all
};

/// One row in the LLM-Adapters format. `input` is empty in the commonsense files.
struct Row {
  std::string instruction, input, output, answer;
  std::string label{};  ///< what partitions group by: the task kind, a document, a spec; empty when there is none
  std::vector<std::string> options{};     ///< a choice: the answers allowed; empty: as the task or the instruction say
  std::vector<std::string> references{};  ///< free text: the accepted answers
  std::vector<Turn>
      turns{};  ///< a conversation, the last turn an assistant's, whose text is `output`; the rest is empty then
  std::vector<std::pair<std::string, jinja::Value>> variables{};  ///< of a conversation: tools, documents and the like
  std::string variables_json{};                                   ///< these as JSON; empty when there are none
  int64_t answer_at = -1;  ///< free text: byte of `input` where the answer begins, -1: nowhere
};

/// What a row asks: equal for rows that ask the same in the same context. Views into the row.
std::vector<std::string_view> question_of(const Row& row);

/// Positions [begin, end) of a sequence.
struct IdSpan {
  int64_t begin = 0, end = 0;
  bool operator==(const IdSpan&) const = default;
};

/// A tokenised row. Position i predicts ids[i + 1]; only ids from `first_target` on are predicted in the loss, and of
/// these none that lies `between` the answers of a conversation.
struct Example {
  std::vector<int64_t> ids;
  int64_t first_target = 1;       ///< index of the first id that is a target, >= 1; ids.size() when none is left
  std::vector<IdSpan> between{};  ///< in order, apart from each other, at or behind first_target; empty for one answer
  int64_t targets() const;
};

/// What of a packed batch lies before the end of one of its micro-batches.
struct MicroBatchEnd {
  int64_t tokens = 0, targets = 0;
};

/// Sequences laid end to end, without padding. Attention is causal within each sequence. Rows are what goes through the
/// model: one a token, or one for all tokens that stand behind the same tokens of their sequences.
struct PackedBatch {
  at::Tensor ids;                ///< [R] int64
  at::Tensor positions;          ///< [R] int64, position within the sequence (plus its cached length when generating)
  std::vector<int64_t> offsets;  ///< B + 1 starts of sequences, in tokens; the last is T
  at::Tensor rows_T{};     ///< [T] int64, each token's row, numbered as they first appear; undefined: one of its own
  at::Tensor target_rows;  ///< [N] int64, rows of [R] whose hidden state predicts a target; one may predict several
  at::Tensor targets;      ///< [N] int64
  std::vector<MicroBatchEnd> ends{};  ///< of its micro-batches, in order, each some sequences; empty: it is one
  int64_t tokens() const { return offsets.empty() ? 0 : offsets.back(); }
  int64_t sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  std::vector<MicroBatchEnd> micro_batch_ends() const;
};

/// Packs examples in the order given. REQUIRES none is empty.
/// \param micro_batch  so many of them each; 0: all
PackedBatch pack(std::span<const Example* const> examples, int64_t micro_batch = 0);
PackedBatch pack(std::span<const Example> examples, int64_t micro_batch = 0);

/// The same with rows shared where at least a sixteenth of all tokens need none of their own; else as pack().
PackedBatch pack_shared(std::span<const Example* const> examples, int64_t micro_batch = 0);
PackedBatch pack_shared(std::span<const Example> examples, int64_t micro_batch = 0);

/// Packs bare id sequences with every position from the second on a target (scoring, pre-training).
PackedBatch pack_ids(std::span<const std::vector<int64_t>> sequences);

}  // namespace evenkeel
