#include "nn/aten_engine/layout.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "nn/dense/index.h"

namespace evenkeel::nn::aten {
namespace {

std::vector<int64_t> first_tokens(std::span<const int64_t> rows_T) {
  std::vector<int64_t> firsts;
  for (size_t t = 0; t < rows_T.size(); ++t)
    if (rows_T[t] == static_cast<int64_t>(firsts.size())) firsts.push_back(static_cast<int64_t>(t));
  return firsts;
}

int64_t longest_of(std::span<const int64_t> offsets) {
  int64_t longest = 0;
  for (size_t b = 0; b + 1 < offsets.size(); ++b) longest = std::max(longest, offsets[b + 1] - offsets[b]);
  return longest;
}

/// Returns the token of each padded position.
std::vector<int64_t> padded_tokens(std::span<const int64_t> offsets, int64_t longest) {
  std::vector<int64_t> tokens;
  for (size_t b = 0; b + 1 < offsets.size(); ++b)
    for (int64_t i = 0; i < longest; ++i) tokens.push_back(std::min(offsets[b] + i, offsets[b + 1] - 1));
  return tokens;
}

/// Returns the padded position of each token.
std::vector<int64_t> unpadded_positions(std::span<const int64_t> offsets, int64_t longest) {
  std::vector<int64_t> positions;
  for (size_t b = 0; b + 1 < offsets.size(); ++b)
    for (int64_t i = 0; i < offsets[b + 1] - offsets[b]; ++i)
      positions.push_back(static_cast<int64_t>(b) * longest + i);
  return positions;
}

std::vector<int64_t> distinct(std::span<const int64_t> values) {
  std::vector<int64_t> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return sorted;
}

/// Copies a rotary table to a device. A GPU's cosines differ from a CPU's in the last bit, so the table is computed on
/// the CPU, for the distinct positions only.
class RotaryUpload {
 public:
  RotaryUpload(std::span<const int64_t> positions_R, int64_t head_width, const RopeSpec& rope, IndexUpload& upload)
      : width_(head_width) {
    const auto known = distinct(positions_R);
    const auto table = rotary_table(at::tensor(known, at::kLong), head_width, rope);
    const int64_t half = head_width / 2;
    const auto all = at::cat({table.cos, table.sin, -table.sin.narrow(1, 0, half), table.sin.narrow(1, 0, half)}, 1);
    table_ = upload.add(std::span(all.const_data_ptr<float>(), static_cast<size_t>(all.numel())));
    std::vector<int64_t> rows;
    for (const int64_t position : positions_R)
      rows.push_back(std::lower_bound(known.begin(), known.end(), position) - known.begin());
    rows_ = upload.add(rows);
  }
  void put_sent(const IndexUpload& upload, Layout& layout) const {
    const auto all_RP = upload.sent_floats(table_).view({-1, 3 * width_}).index_select(0, upload.sent(rows_));
    layout.rotary.push_back({all_RP.narrow(1, 0, width_), all_RP.narrow(1, width_, width_)});
    layout.signed_sin.push_back(all_RP.narrow(1, 2 * width_, width_));
  }

 private:
  int64_t width_;
  size_t table_ = 0, rows_ = 0;
};

/// Returns the tensors of a layout that are defined.
std::vector<at::Tensor*> pointers(Layout& layout) {
  std::vector<at::Tensor*> all{&layout.ids_R, &layout.starts_B1};
  for (auto& table : layout.rotary) all.insert(all.end(), {&table.cos, &table.sin});
  for (auto& sin : layout.signed_sin) all.push_back(&sin);
  for (auto* index : {&layout.copies, &layout.firsts, &layout.padded, &layout.unpadded})
    if (index->defined()) all.insert(all.end(), {&index->from_N, &index->order_N, &index->begins_R});
  return all;
}

}  // namespace

Layout Layout::of(const data::PackedBatch& batch, int64_t head_width, std::span<const RopeSpec> ropes,
                  c10::Device device, int64_t longest_step) {
  Layout layout;
  layout.offsets = batch.offsets;
  layout.longest = (longest_of(batch.offsets) + longest_step - 1) / longest_step * longest_step;
  IndexUpload upload;
  const size_t ids = upload.add(numbers(batch.ids)), starts = upload.add(ints(layout.offsets));
  std::vector<RotaryUpload> tables;
  for (const auto& rope : ropes) tables.emplace_back(numbers(batch.positions), head_width, rope, upload);
  const int64_t tokens = batch.tokens(), padded_rows = batch.sequences() * layout.longest;
  const RowIndexUpload padded(padded_tokens(layout.offsets, layout.longest), tokens, upload),
      unpadded(unpadded_positions(layout.offsets, layout.longest), padded_rows, upload);
  std::optional<RowIndexUpload> copies, firsts;
  if (batch.rows_T.defined()) {
    const auto rows_T = numbers(batch.rows_T);
    copies.emplace(rows_T, batch.ids.size(0), upload);
    firsts.emplace(first_tokens(rows_T), tokens, upload);
  }
  upload.send(device);
  layout.ids_R = upload.sent(ids);
  for (const auto& table : tables) table.put_sent(upload, layout);
  layout.starts_B1 = upload.sent_ints(starts);
  layout.padded = padded.sent(upload);
  layout.unpadded = unpadded.sent(upload);
  if (copies) layout.copies = copies->sent(upload), layout.firsts = firsts->sent(upload);
  return layout;
}

std::vector<at::Tensor> Layout::tensors() const {
  std::vector<at::Tensor> all;
  Layout alias = *this;
  for (auto* tensor : pointers(alias)) all.push_back(*tensor);
  return all;
}

Layout Layout::copy() const {
  Layout result = *this;
  for (auto* tensor : pointers(result)) *tensor = tensor->clone();
  return result;
}

}  // namespace evenkeel::nn::aten
