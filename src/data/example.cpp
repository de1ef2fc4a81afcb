#include "data/example.h"

#include <ATen/ATen.h>

#include <map>
#include <utility>

#include "base/plain/error.h"

namespace evenkeel::data {
namespace {

// Rows are shared if at least one token in this many is a copy, because copies cost time in attention.
constexpr int64_t kMaxTokensPerCopy = 16;

enum class Rows { kOwn, kShared };

/// Concatenates sequences and collects their targets.
class Packer {
 public:
  explicit Packer(Rows rows) : shared_(rows == Rows::kShared) { batch_.offsets = {0}; }

  void add(std::span<const int64_t> ids, int64_t first_target, std::span<const IdSpan> between = {}) {
    EK_CHECK(!ids.empty(), kInternal, "pack: sequence ", batch_.sequences(), " is empty");
    const int64_t start = batch_.offsets.back(), length = static_cast<int64_t>(ids.size());
    for (int64_t i = 0, row = kNone; i < length; ++i) {
      row = row_of(row, ids[static_cast<size_t>(i)], i);
      row_of_token_.push_back(row);
    }
    int64_t from = std::max<int64_t>(first_target, 1);
    for (const auto& gap : between) {
      add_targets(ids, start, from, gap.begin);
      from = gap.end;
    }
    add_targets(ids, start, from, length);
    batch_.offsets.push_back(start + length);
  }

  /// Ends the micro-batch of the examples added since the previous call.
  void end_micro_batch() { batch_.ends.push_back({batch_.tokens(), static_cast<int64_t>(targets_.size())}); }

  PackedBatch finish() {
    batch_.ids = at::tensor(ids_, at::kLong);
    batch_.positions = at::tensor(positions_, at::kLong);
    if (shared_) batch_.rows_T = at::tensor(row_of_token_, at::kLong);
    batch_.target_rows = at::tensor(target_rows_, at::kLong);
    batch_.targets = at::tensor(targets_, at::kLong);
    return std::move(batch_);
  }

 private:
  static constexpr int64_t kNone = -1;

  /// Returns the row of token `id` if it follows the token of row `before`.
  int64_t row_of(int64_t before, int64_t id, int64_t position) {
    const auto new_row = static_cast<int64_t>(ids_.size());
    if (shared_) {
      const auto [known, is_new] = child_row_.try_emplace({before, id}, new_row);
      if (!is_new) return known->second;
    }
    ids_.push_back(id);
    positions_.push_back(position);
    return new_row;
  }

  void add_targets(std::span<const int64_t> ids, int64_t start, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      target_rows_.push_back(row_of_token_[static_cast<size_t>(start + i - 1)]);
      targets_.push_back(ids[static_cast<size_t>(i)]);
    }
  }

  bool shared_;
  PackedBatch batch_;
  std::map<std::pair<int64_t, int64_t>, int64_t> child_row_;  // (row, id) -> row
  std::vector<int64_t> ids_, positions_, row_of_token_, target_rows_, targets_;
};

const Example& value(const Example& example) { return example; }
const Example& value(const Example* example) { return *example; }

PackedBatch packed(const auto& examples, int64_t micro_batch, Rows rows) {
  Packer packer(rows);
  int64_t added = 0;
  for (const auto& each : examples) {
    packer.add(value(each).ids, value(each).first_target, value(each).between);
    if (micro_batch > 0 && ++added % micro_batch == 0) packer.end_micro_batch();
  }
  EK_CHECK(micro_batch == 0 || added % micro_batch == 0, kInternal, "pack: ", added, " rows are no micro-batches of ",
           micro_batch);
  return packer.finish();
}

PackedBatch shared_where_worth_it(const auto& examples, int64_t micro_batch) {
  auto batch = packed(examples, micro_batch, Rows::kShared);
  const int64_t copies = batch.tokens() - batch.ids.size(0);
  return copies * kMaxTokensPerCopy >= batch.tokens() ? batch : packed(examples, micro_batch, Rows::kOwn);
}

constexpr std::string_view kEmptyLine = "\n\n";

/// Adds the lines of a text, after an empty line if there are `others`: together they are the lines of blocks().
void add_lines(std::string_view text, bool others, std::vector<std::string_view>& lines) {
  if (text.empty()) return;
  if (others) lines.push_back("");
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  lines.push_back(text);
}

}  // namespace

std::vector<std::string_view> question_of(const Row& row) {
  std::vector<std::string_view> question{row.instruction, row.input};
  for (size_t i = 0; i + 1 < row.turns.size(); ++i) {
    const auto& turn = row.turns[i];
    question.insert(question.end(), {turn.role, turn.content});
    if (!turn.more.empty()) question.push_back(turn.more);
  }
  if (!row.variables_json.empty()) question.push_back(row.variables_json);
  return question;
}

std::vector<std::string_view> comparable_question(const Row& row) {
  std::vector<std::string_view> question{row.variables_json};
  add_lines(row.instruction, /*others=*/false, question);
  add_lines(row.input, !row.instruction.empty(), question);
  const auto& turns = row.turns;
  if (turns.size() == 2 && turns[0].role == "user" && turns[0].more.empty()) {
    add_lines(turns[0].content, /*others=*/false, question);
    return question;
  }
  for (size_t i = 0; i + 1 < turns.size(); ++i)  // no line has line ends, so a text never equals several turns
    question.insert(question.end(), {kEmptyLine, turns[i].role, turns[i].content, turns[i].more});
  if (question.size() == 1) add_lines(row.output, /*others=*/false, question);
  return question;
}

std::string blocks(std::string_view first, std::string_view second) {
  return concat(first, first.empty() || second.empty() ? "" : kEmptyLine, second);
}

std::string question_text(const Row& row) {
  auto text = blocks(row.instruction, row.input);
  for (size_t i = 0; i + 1 < row.turns.size(); ++i) text = blocks(text, row.turns[i].content);
  return text;
}

int64_t Example::targets() const {
  int64_t count = static_cast<int64_t>(ids.size()) - first_target;
  for (const auto& gap : between) count -= gap.end - gap.begin;
  return count;
}

int64_t tokens_in(std::span<const Example> examples) {
  int64_t tokens = 0;
  for (const auto& example : examples) tokens += static_cast<int64_t>(example.ids.size());
  return tokens;
}

std::vector<MicroBatchEnd> PackedBatch::micro_batch_ends() const {
  return ends.empty() ? std::vector{MicroBatchEnd{tokens(), targets.numel()}} : ends;
}

PackedBatch pack(std::span<const Example* const> examples, int64_t micro_batch) {
  return packed(examples, micro_batch, Rows::kOwn);
}
PackedBatch pack(std::span<const Example> examples, int64_t micro_batch) {
  return packed(examples, micro_batch, Rows::kOwn);
}

PackedBatch pack_shared(std::span<const Example* const> examples, int64_t micro_batch) {
  return shared_where_worth_it(examples, micro_batch);
}
PackedBatch pack_shared(std::span<const Example> examples, int64_t micro_batch) {
  return shared_where_worth_it(examples, micro_batch);
}

PackedBatch pack_ids(std::span<const std::vector<int64_t>> sequences) {
  Packer packer(Rows::kOwn);
  for (const auto& ids : sequences) packer.add(ids, 1);
  return packer.finish();
}

}  // namespace evenkeel::data
