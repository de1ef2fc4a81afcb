/// \file  Keys and values that generation goes on from. A sequence is a list of runs of rows in stretches of memory, so
/// that sequences share what they begin with and nothing is copied: a template in front of all prompts, a prompt before
/// its answers, the beams of a search. Dimension names: G key/value heads, P head width.
///
/// Example:  KvCache cache(shape);
///           cache.sequences.resize(2);
///           cache.open(0, 40);  cache.open(1, 25);   // room for so many tokens; a forward pass fills it
///           cache.select({1, 1, 0});                 // the first two share all that sequence 1 had
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel {

/// How cached keys and values are stored.
enum class KvType {
  kExact,     ///< in the activations' own type, float32
  kBFloat16,  ///< rounded to bfloat16: half the memory
};
constexpr auto names(KvType) {
  return std::array{config::EnumName<KvType>{"float32", KvType::kExact},
                    config::EnumName<KvType>{"bfloat16", KvType::kBFloat16}};
}

struct KvShape {
  int64_t layers = 0, heads = 0, width = 0;  ///< heads are G, width P
  at::ScalarType type = at::kFloat;          ///< kFloat, kDouble or kBFloat16
  c10::Device device = c10::kCPU;            ///< another one for engine aten alone
  int64_t token_bytes() const { return 2 * layers * heads * width * static_cast<int64_t>(at::elementSize(type)); }
};

/// Room for keys and values of `capacity` tokens in all layers; what lies together is what one head meets.
struct KvBlock {
  KvBlock(const KvShape& shape, int64_t capacity);
  at::Tensor all;  ///< [layers, 2, G, capacity, P]: keys, then values
  int64_t capacity, used = 0;
};

/// Rows [first, first + count) of a block.
struct KvRun {
  std::shared_ptr<KvBlock> block;
  int64_t first = 0, count = 0;
  bool operator==(const KvRun&) const = default;
};

struct KvSequence {
  std::vector<KvRun> runs{};                ///< position after position
  std::shared_ptr<KvBlock> append_block{};  ///< where new tokens go; others may append to it as well

  int64_t length() const;
  /// The sequence's first `tokens` tokens, without room.
  KvSequence prefix(int64_t tokens) const;
};

class KvCache {
 public:
  explicit KvCache(const KvShape& shape) : shape_(shape) {}

  std::vector<KvSequence> sequences;

  const KvShape& shape() const { return shape_; }
  /// Gives a sequence room for `tokens` more. Memory: tokens * shape().token_bytes(), touched as they come.
  void open(size_t sequence, int64_t tokens);
  /// The same for several that append to one block: the beams of a search.
  void open(std::span<const size_t> together, int64_t tokens);
  /// Appends as many uninitialised rows to each sequence as `offsets` [B + 1] say. \throws kInternal without room.
  void extend(std::span<const int64_t> offsets);
  /// Makes sequence sources[i] sequence i. Nothing is copied: those of one source share what there is, and room.
  void select(std::span<const int64_t> sources);
  std::vector<int64_t> lengths() const;

 private:
  KvShape shape_;
};

}  // namespace evenkeel
