#include "data/example.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace evenkeel {
namespace {

/// Lays sequences end to end and gathers their targets.
class Packer {
 public:
  Packer() { batch_.offsets = {0}; }

  void add(std::span<const int64_t> ids, int64_t first_target, std::span<const IdSpan> between = {}) {
    EK_CHECK(!ids.empty(), kInternal, "pack: sequence ", batch_.sequences(), " is empty");
    const int64_t start = batch_.offsets.back(), length = static_cast<int64_t>(ids.size());
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    for (int64_t i = 0; i < length; ++i) positions_.push_back(i);
    int64_t from = std::max<int64_t>(first_target, 1);
    for (const auto& gap : between) {
      add_targets(ids, start, from, gap.begin);
      from = gap.end;
    }
    add_targets(ids, start, from, length);
    batch_.offsets.push_back(start + length);
  }

  PackedBatch finish() {
    batch_.ids = at::tensor(ids_, at::kLong);
    batch_.positions = at::tensor(positions_, at::kLong);
    batch_.target_rows = at::tensor(rows_, at::kLong);
    batch_.targets = at::tensor(targets_, at::kLong);
    return std::move(batch_);
  }

 private:
  void add_targets(std::span<const int64_t> ids, int64_t start, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      rows_.push_back(start + i - 1);
      targets_.push_back(ids[static_cast<size_t>(i)]);
    }
  }

  PackedBatch batch_;
  std::vector<int64_t> ids_, positions_, rows_, targets_;
};

}  // namespace

std::vector<std::string_view> question_of(const Row& row) {
  std::vector<std::string_view> question{row.instruction, row.input};
  for (size_t i = 0; i + 1 < row.turns.size(); ++i)
    question.insert(question.end(), {row.turns[i].role, row.turns[i].content});
  return question;
}

int64_t Example::targets() const {
  int64_t count = static_cast<int64_t>(ids.size()) - first_target;
  for (const auto& gap : between) count -= gap.end - gap.begin;
  return count;
}

PackedBatch pack(std::span<const Example* const> examples) {
  Packer packer;
  for (const auto* example : examples) packer.add(example->ids, example->first_target, example->between);
  return packer.finish();
}

PackedBatch pack(std::span<const Example> examples) {
  Packer packer;
  for (const auto& example : examples) packer.add(example.ids, example.first_target, example.between);
  return packer.finish();
}

PackedBatch pack_ids(std::span<const std::vector<int64_t>> sequences) {
  Packer packer;
  for (const auto& ids : sequences) packer.add(ids, 1);
  return packer.finish();
}

}  // namespace evenkeel
