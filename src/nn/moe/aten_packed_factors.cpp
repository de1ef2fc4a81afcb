#include "nn/moe/aten_packed_factors.h"

#include <ATen/ATen.h>

#include "nn/moe/aten_grouped.h"

namespace evenkeel::nn::aten {
namespace {

/// Writes `parts` into the packed pair, from rank `at` on.
void put(std::span<const LoraPair> parts, int64_t at, PackedFactors& packed) {
  for (const auto& part : parts) {
    const int64_t rank = part.a.size(1);
    packed.a_ERI.narrow(1, at, rank).copy_(part.a);
    auto b = part_of_b(packed.b_EOR, part, at);
    if (part.b.scalar_type() == b.scalar_type() && part.scaling == 1)
      b.copy_(part.b);
    else
      at::mul_out(b, part.b, at::scalar_tensor(part.scaling, at::kDouble));
    at += rank;
  }
}

}  // namespace

PackedFactors pack(std::span<const LoraPair> parts, size_t trained_parts, int64_t out, at::ScalarType type) {
  if (parts.empty()) return {};
  const auto trained = parts.first(trained_parts), frozen = parts.subspan(trained_parts);
  const int64_t first_frozen = packed_ranks(trained, type), ranks = first_frozen + packed_ranks(frozen, type);
  PackedFactors packed;
  const auto& like = parts.front().a;
  packed.a_ERI = at::zeros({like.size(0), ranks, like.size(2)}, like.options().dtype(type));
  packed.b_EOR = at::zeros({like.size(0), out, ranks}, like.options().dtype(type));
  put(trained, 0, packed);
  put(frozen, first_frozen, packed);
  return packed;
}

int64_t packed_ranks(std::span<const LoraPair> parts, at::ScalarType type) {
  const int64_t step = alignment(type);
  int64_t ranks = 0;
  for (const auto& part : parts) ranks += part.a.size(1);
  return (ranks + step - 1) / step * step;
}

at::Tensor part_of_a(const at::Tensor& da_ERI, const LoraPair& part, int64_t first_rank) {
  return da_ERI.narrow(1, first_rank, part.a.size(1));
}

at::Tensor part_of_b(const at::Tensor& db_EOR, const LoraPair& part, int64_t first_rank) {
  return db_EOR.narrow(1, part.first_out, part.b.size(1)).narrow(2, first_rank, part.a.size(1));
}

}  // namespace evenkeel::nn::aten
