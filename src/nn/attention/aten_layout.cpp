#include "nn/attention/aten_layout.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

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

}  // namespace

Layout Layout::of(const data::PackedBatch& batch, c10::Device device) {
  Layout layout;
  layout.offsets = batch.offsets;
  layout.longest = longest_of(batch.offsets);
  IndexUpload upload;
  const size_t ids = upload.add(numbers(batch.ids)), positions = upload.add(numbers(batch.positions)),
               starts = upload.add(layout.offsets);
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
  layout.positions_R = upload.sent(positions);
  layout.starts_B1 = upload.sent(starts).to(at::kInt);
  layout.padded = padded.sent(upload);
  layout.unpadded = unpadded.sent(upload);
  if (copies) layout.copies = copies->sent(upload), layout.firsts = firsts->sent(upload);
  return layout;
}

}  // namespace evenkeel::nn::aten
