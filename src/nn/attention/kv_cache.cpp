#include "nn/attention/kv_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/plain/error.h"
#include "base/system/transfers.h"
#include "nn/dense/index.h"

namespace evenkeel::nn {
namespace {

at::Tensor memory_of(const KvShape& shape, int64_t rows) {
  return at::empty({shape.layers, 2, shape.heads, rows, shape.width}, at::device(shape.device).dtype(shape.type));
}

/// Returns keys and values of a layer with one axis for kinds and heads, [2 G, rows, P].
at::Tensor flat_layer(const at::Tensor& memory, int64_t layer) { return memory[layer].flatten(0, 1); }

/// Returns the cached keys and values of a layer, sequence after sequence, [2 G, tokens, P].
at::Tensor rows_of_layer(std::span<const KvSequence> sequences, int64_t layer) {
  std::vector<at::Tensor> rows;
  for (const auto& sequence : sequences)
    for (const auto& run : sequence.runs)
      rows.push_back(flat_layer(run.block->memory, layer).narrow(1, run.first_row(), run.count));
  return at::cat(rows, 1);
}

/// Returns the place of a sequence that is the only run of a block which is a place; -1: it is none.
int64_t place_of(const KvSequence& sequence, const KvBlock& first) {
  if (sequence.runs.size() != 1 || sequence.append_block != sequence.runs.front().block) return -1;
  const auto& run = sequence.runs.front();
  const auto& block = *run.block;
  const bool is_place = block.memory.is_same(first.memory) && block.capacity == first.capacity && run.first == 0 &&
                        block.first_row % block.capacity == 0 && block.memory.size(3) % block.capacity == 0;
  return is_place ? block.first_row / block.capacity : -1;
}

}  // namespace

at::Tensor KvArena::memory(const KvShape& shape, int64_t places, int64_t capacity) {
  const std::array sizes{shape.layers, int64_t{2}, shape.heads, places * capacity, shape.width};
  const int64_t values = c10::multiply_integers(sizes);
  if (!values_.defined() || values_.numel() < values || values_.device() != shape.device ||
      values_.scalar_type() != shape.type)
    values_.reset(), values_ = at::zeros({values}, at::device(shape.device).dtype(shape.type));
  return values_.narrow(0, 0, values).view(sizes);
}

int64_t KvSequence::length() const {
  int64_t tokens = 0;
  for (const auto& run : runs) tokens += run.count;
  return tokens;
}

KvSequence KvSequence::prefix(int64_t tokens) const {
  KvSequence result;
  for (const auto& run : runs) {
    if (tokens == 0) break;
    result.runs.push_back({run.block, run.first, std::min(tokens, run.count)});
    tokens -= result.runs.back().count;
  }
  EK_CHECK(tokens == 0, kInternal, "a cached sequence is ", tokens, " tokens shorter than its beginning");
  return result;
}

void KvCache::open(std::span<const int64_t> tokens) {
  EK_CHECK(tokens.size() == sequences.size(), kShape, "room for ", tokens.size(), " sequences in a cache of ",
           sequences.size());
  const auto memory = memory_of(shape_, std::accumulate(tokens.begin(), tokens.end(), int64_t{0}));
  int64_t first = 0;
  for (size_t b = 0; b < tokens.size(); first += tokens[b++])
    sequences[b].append_block = std::make_shared<KvBlock>(KvBlock{memory, first, tokens[b]});
}

void KvCache::open(size_t sequence, int64_t tokens) {
  sequences[sequence].append_block = std::make_shared<KvBlock>(KvBlock{memory_of(shape_, tokens), 0, tokens});
}

void KvCache::extend(std::span<const int64_t> offsets) {
  EK_CHECK(offsets.size() == sequences.size() + 1, kShape, "a batch of ", offsets.size() - 1,
           " sequences with a cache of ", sequences.size());
  for (size_t b = 0; b < sequences.size(); ++b) {
    auto& [runs, append_block] = sequences[b];
    const int64_t tokens = offsets[b + 1] - offsets[b];
    EK_CHECK(append_block && append_block->used + tokens <= append_block->capacity, kInternal,
             "key/value cache: sequence ", b, " has room for ",
             append_block ? append_block->capacity - append_block->used : 0, " tokens, ", tokens, " are needed");
    if (!runs.empty() && runs.back().block == append_block &&
        runs.back().first + runs.back().count == append_block->used)
      runs.back().count += tokens;
    else
      runs.push_back({append_block, append_block->used, tokens});
    append_block->used += tokens;
  }
}

void KvCache::select(std::span<const int64_t> sources) {
  std::vector<KvSequence> picked;
  for (const int64_t source : sources) picked.push_back(sequences[static_cast<size_t>(source)]);
  sequences = std::move(picked);
}

void KvCache::move_to_places(const at::Tensor& memory, int64_t capacity) {
  std::vector<int64_t> rows;
  std::vector<KvSequence> moved;
  for (size_t b = 0; b < sequences.size(); ++b) {
    const int64_t first = static_cast<int64_t>(b) * capacity, length = sequences[b].length();
    EK_CHECK(length <= capacity && first + capacity <= memory.size(3), kInternal, "key/value cache: sequence ", b,
             " of ", length, " tokens has no place of ", capacity);
    for (int64_t i = 0; i < length; ++i) rows.push_back(first + i);
    auto block = std::make_shared<KvBlock>(KvBlock{memory, first, capacity, length});
    moved.push_back({.runs = {{block, 0, length}}, .append_block = block});
  }
  const auto index = uploaded(rows, shape_.device);
  for (int64_t layer = 0; layer < shape_.layers; ++layer)
    copy_rows_once(flat_layer(memory, layer), 1, index, rows_of_layer(sequences, layer));
  sequences = std::move(moved);
}

std::optional<KvPlaces> KvCache::places() const {
  if (sequences.empty() || !sequences.front().append_block) return std::nullopt;
  const auto& first = *sequences.front().append_block;
  KvPlaces places{first.memory, first.capacity};
  for (const auto& sequence : sequences) {
    places.place_B.push_back(place_of(sequence, first));
    if (places.place_B.back() < 0) return std::nullopt;
  }
  return places;
}

std::vector<int64_t> KvCache::lengths() const {
  std::vector<int64_t> all;
  for (const auto& sequence : sequences) all.push_back(sequence.length());
  return all;
}

}  // namespace evenkeel::nn
