#include "nn/attention/kv_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/plain/error.h"

namespace evenkeel::nn {
namespace {

at::Tensor memory_of(const KvShape& shape, int64_t rows) {
  return at::empty({shape.layers, 2, shape.heads, rows, shape.width}, at::device(shape.device).dtype(shape.type));
}

}  // namespace

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

std::vector<int64_t> KvCache::lengths() const {
  std::vector<int64_t> all;
  for (const auto& sequence : sequences) all.push_back(sequence.length());
  return all;
}

}  // namespace evenkeel::nn
