/// \file  Defines the key/value cache of generation. A sequence is a list of runs of rows in blocks of memory.
/// Sequences share the runs of a common prefix without a copy. Such prefixes are a template before all prompts, a
/// prompt before its answers, and the common part of the beams of a search. Dimension names: G key/value heads, P head
/// width.
///
/// Example:  KvCache cache(shape);
///           cache.sequences.resize(2);
///           cache.open(std::vector<int64_t>{40, 25});  // room for 40 and 25 tokens; a forward pass fills it
///           cache.select({1, 1, 0});                   // the first two share the rows of sequence 1
///
/// After KvCache::move_to_places() each sequence has a fixed range of rows of its own, a *place*. Engine aten then
/// reads and writes the cache in place instead of copying it for each pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel::nn {

/// The type of cached keys and values.
enum class KvType {
  kExact,     ///< Compute::inner: float32, or bfloat16 where products are in bfloat16; float64 on a float64 base
  kBFloat16,  ///< rounded to bfloat16: half the memory of float32
};
constexpr auto names(KvType) {
  return std::array{config::EnumName<KvType>{"float32", KvType::kExact},
                    config::EnumName<KvType>{"bfloat16", KvType::kBFloat16}};
}

/// The sizes of a cache.
struct KvShape {
  int64_t layers = 0, heads = 0, width = 0;  ///< heads are G, width P
  at::ScalarType type = at::kFloat;          ///< kFloat, kDouble or kBFloat16
  c10::Device device = c10::kCPU;            ///< others are supported by engine aten only
  /// Returns the bytes of the keys and values of one token in all layers.
  int64_t token_bytes() const { return 2 * layers * heads * width * static_cast<int64_t>(at::elementSize(type)); }
};

/// Memory for the keys and values of `capacity` tokens in all layers. It is a range of rows of a tensor that several
/// blocks may share. The rows of one head are contiguous.
struct KvBlock {
  at::Tensor memory;      ///< [layers, 2, G, rows, P]: keys, then values
  int64_t first_row = 0;  ///< first row of the block in `memory`
  int64_t capacity = 0, used = 0;
};

/// Rows [first, first + count) of a block.
struct KvRun {
  std::shared_ptr<KvBlock> block;
  int64_t first = 0, count = 0;
  bool operator==(const KvRun&) const = default;
  /// Returns the first row of the run in block->memory.
  int64_t first_row() const { return block->first_row + first; }
};

/// One cached sequence.
struct KvSequence {
  std::vector<KvRun> runs{};                ///< in the order of the positions
  std::shared_ptr<KvBlock> append_block{};  ///< where new tokens are written; sequences may share it

  /// Returns the number of cached tokens.
  int64_t length() const;
  /// Returns the first `tokens` tokens, without an append_block. \throws kInternal if there are fewer
  KvSequence prefix(int64_t tokens) const;
};

/// Memory that is divided into places of equal size. Place i has the rows [i * capacity, (i + 1) * capacity). Passes
/// may overwrite places that no sequence has.
struct KvPlaces {
  at::Tensor memory;               ///< [layers, 2, G, places x capacity, P]: keys, then values
  int64_t capacity = 0;            ///< tokens of a place
  std::vector<int64_t> place_B{};  ///< the place of each sequence
  /// Returns the number of places.
  int64_t count() const { return memory.size(3) / capacity; }
};

/// Memory for one cache with places at a time. It is kept and only grows, so that the next cache usually lies at the
/// same addresses.
class KvArena {
 public:
  /// Returns memory for `places` places of `capacity` tokens. It may be the memory of an earlier call, with old values.
  /// These are finite if all keys and values were, as attention requires: it multiplies masked values by zero.
  /// \return [layers, 2, G, places x capacity, P]
  at::Tensor memory(const KvShape& shape, int64_t places, int64_t capacity);
  /// Returns the bytes that the arena keeps.
  int64_t bytes() const { return values_.defined() ? static_cast<int64_t>(values_.nbytes()) : 0; }

 private:
  at::Tensor values_;
};

/// The cache of a batch of sequences. Threads: one at a time.
class KvCache {
 public:
  explicit KvCache(const KvShape& shape) : shape_(shape) {}

  std::vector<KvSequence> sequences;

  const KvShape& shape() const { return shape_; }
  /// Allocates one tensor with room for `tokens[b]` more tokens of each sequence b. A token takes shape().token_bytes()
  /// bytes. Pages are touched when tokens are written. \throws kShape unless there is one number for each sequence
  void open(std::span<const int64_t> tokens);
  /// Allocates a tensor with room for `tokens` more tokens of one sequence.
  void open(size_t sequence, int64_t tokens);
  /// Appends offsets[b + 1] - offsets[b] uninitialised rows to each sequence b. \throws kShape unless there are as many
  /// sequences as in the cache; kInternal if the block of a sequence is full
  void extend(std::span<const int64_t> offsets);
  /// Replaces sequence i by the former sequence sources[i]. Nothing is copied: sequences with the same source share its
  /// rows and its append_block.
  void select(std::span<const int64_t> sources);
  /// Copies sequence b to place b, where it can grow to `capacity` tokens. Sequences share no rows afterwards.
  /// \param memory  from KvArena::memory(), with at least as many places as there are sequences
  /// \param capacity  tokens of a place \throws kInternal if a sequence is longer than a place, or has no place
  void move_to_places(const at::Tensor& memory, int64_t capacity);
  /// Returns the places of the sequences; nullopt unless each sequence is one run from the first row of a place, and
  /// all places are in one tensor. It does not check that the places differ.
  std::optional<KvPlaces> places() const;
  /// Returns the number of cached tokens of each sequence.
  std::vector<int64_t> lengths() const;

 private:
  KvShape shape_;
};

}  // namespace evenkeel::nn
