#include "nn/aten_engine/packed_factors.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <map>
#include <optional>
#include <utility>

#include "nn/aten_engine/grouped.h"

namespace evenkeel::nn::aten {
namespace {

int64_t ranks_of(std::span<const LoraPair> pairs) {
  int64_t ranks = 0;
  for (const auto& pair : pairs) ranks += pair.a.size(1);
  return ranks;
}

/// Multiplies each B by its scaling, with one operator.
void scale(std::vector<StackParts>& stacks) {
  std::vector<LoraPair*> pairs;
  std::vector<at::Tensor> factors;
  std::vector<at::Scalar> scalings;
  for (auto& stack : stacks)
    for (auto& pair : stack.pairs) {
      if (pair.scaling == 1) continue;
      pairs.push_back(&pair), factors.push_back(pair.b), scalings.emplace_back(pair.scaling);
    }
  if (pairs.empty()) return;
  const auto scaled = at::_foreach_mul(factors, scalings);
  for (size_t i = 0; i < pairs.size(); ++i) pairs[i]->b = scaled[i];
}

/// Converts all factors to `type`, with one operator.
void convert(std::vector<StackParts>& stacks, at::ScalarType type) {
  std::vector<at::Tensor> from, to;
  for (auto& stack : stacks)
    for (auto& pair : stack.pairs)
      for (auto* factor : {&pair.a, &pair.b}) {
        if (factor->scalar_type() == type) continue;
        from.push_back(*factor);
        *factor = to.emplace_back(at::empty(factor->sizes(), factor->options().dtype(type)));
      }
  if (!from.empty()) at::_foreach_copy_(to, from);
}

/// Collects the ranks of the packed factors of several stacks, one after the other.
class Pieces {
 public:
  Pieces(const LoraPair& like, int64_t blocks) : like_(like), b_(static_cast<size_t>(blocks)) {}

  void add(const LoraPair& pair) {
    a_.push_back(pair.a);
    for (size_t block = 0; block < b_.size(); ++block) {
      const bool own = pair.first_out == static_cast<int64_t>(block) * pair.b.size(1);
      b_[block].push_back(own ? pair.b : zeros(pair.b.size(1), pair.a.size(1)));
    }
  }
  void add(std::span<const LoraPair> pairs, at::ScalarType type) {
    for (const auto& pair : pairs) add(pair);
    const int64_t padding = packed_ranks(pairs, type) - ranks_of(pairs);
    if (padding == 0) return;
    a_.push_back(zeros(padding, like_.a.size(2)));
    for (auto& block : b_) block.push_back(zeros(like_.b.size(1), padding));
  }
  PackedFactors joined() const {
    std::vector<at::Tensor> blocks;
    for (const auto& block : b_) blocks.push_back(at::cat(block, 2));
    return {at::cat(a_, 1), blocks.size() == 1 ? blocks[0] : at::cat(blocks, 1)};
  }

 private:
  at::Tensor zeros(int64_t rows, int64_t columns) {
    auto& known = zeros_[{rows, columns}];
    if (!known.defined()) known = at::zeros({like_.a.size(0), rows, columns}, like_.a.options());
    return known;
  }

  const LoraPair& like_;
  std::vector<at::Tensor> a_;
  std::vector<std::vector<at::Tensor>> b_;  // by block of outputs
  std::map<std::pair<int64_t, int64_t>, at::Tensor> zeros_;
};

std::vector<StackParts> detached(std::span<const StackParts> stacks) {
  std::vector<StackParts> result(stacks.begin(), stacks.end());
  for (auto& stack : result)
    for (auto& pair : stack.pairs) pair.a = pair.a.detach(), pair.b = pair.b.detach();
  return result;
}

}  // namespace

std::vector<PackedFactors> pack(std::span<const StackParts> stacks, int64_t blocks, at::ScalarType type) {
  const c10::NoGradGuard no_grad;
  auto parts = detached(stacks);
  scale(parts);
  convert(parts, type);
  std::optional<Pieces> pieces;
  std::vector<int64_t> ranks;
  for (const auto& stack : parts) {
    const auto trained = std::span(stack.pairs).first(stack.trained),
               frozen = std::span(stack.pairs).subspan(stack.trained);
    ranks.push_back(packed_ranks(trained, type) + packed_ranks(frozen, type));
    if (stack.pairs.empty()) continue;
    if (!pieces) pieces.emplace(stack.pairs.front(), blocks);
    pieces->add(trained, type);
    pieces->add(frozen, type);
  }
  std::vector<PackedFactors> packed(stacks.size());
  if (!pieces) return packed;
  const auto all = pieces->joined();
  for (size_t s = 0, first = 0; s < packed.size(); first += static_cast<size_t>(ranks[s++]))
    if (ranks[s] > 0)
      packed[s] = {all.a_ERI.narrow(1, static_cast<int64_t>(first), ranks[s]),
                   all.b_EOR.narrow(2, static_cast<int64_t>(first), ranks[s])};
  return packed;
}

int64_t packed_ranks(std::span<const LoraPair> pairs, at::ScalarType type) {
  const int64_t step = alignment(type);
  return (ranks_of(pairs) + step - 1) / step * step;
}

at::Tensor part_of_a(const at::Tensor& da_ERI, const LoraPair& part, int64_t first_rank) {
  return da_ERI.narrow(1, first_rank, part.a.size(1));
}

at::Tensor part_of_b(const at::Tensor& db_EOR, const LoraPair& part, int64_t first_rank) {
  return db_EOR.narrow(1, part.first_out, part.b.size(1)).narrow(2, first_rank, part.a.size(1));
}

}  // namespace evenkeel::nn::aten
