#include "lora/algebra.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace evenkeel {
namespace {

at::Tensor with_core(const LoraFactors& factors) {
  return factors.core.defined() ? at::matmul(factors.b, factors.core) : factors.b;
}

/// Makes the entry of largest magnitude of each column of U positive (the first of them when there are several, up to
/// rounding), and turns the rows of V^T along with it.
void fix_signs(ProductSvd& svd) {
  constexpr double kTie = 1 - 1e-9;
  const auto size = svd.u.abs();
  const auto tied = size.ge(size.amax(-2, /*keepdim=*/true) * kTie);
  const auto first = at::arange(svd.u.size(-2), 0, -1).unsqueeze(-1);
  const auto rows = (tied * first).argmax(-2, /*keepdim=*/true);
  const auto signs = at::where(svd.u.gather(-2, rows) < 0, -1.0, 1.0).to(svd.u.scalar_type());  // [*, 1, k]
  svd.u = svd.u * signs;
  svd.vt = svd.vt * signs.transpose(-1, -2);
}

at::Tensor identity_like(const at::Tensor& product, int64_t size) {
  auto sizes = product.sizes().vec();
  sizes[sizes.size() - 1] = sizes[sizes.size() - 2] = size;
  return at::eye(size, product.options()).expand(sizes).contiguous();
}

/// B A, summed in float64, one expert at a time: a float64 copy of a whole stack would be large.
at::Tensor exact_product(const LoraFactors& factors) {
  const auto product = [](const at::Tensor& b, const at::Tensor& a) {
    return at::mm(b.to(at::kDouble), a.to(at::kDouble)).to(a.scalar_type());
  };
  if (factors.a.dim() == 2) return product(factors.b, factors.a);
  std::vector<at::Tensor> experts;
  for (int64_t e = 0; e < factors.a.size(0); ++e) experts.push_back(product(factors.b[e], factors.a[e]));
  return at::stack(experts);
}

/// A stack at least as high as a side of its weight, as one product beside an identity.
LoraFactors folded(const LoraFactors& stack) {
  const int64_t in = stack.a.size(-1), out = stack.b.size(-2);
  const auto product = exact_product(stack);
  const auto identity = identity_like(product, std::min(in, out));
  return in < out ? LoraFactors{.a = identity, .b = product, .scaling = 1}
                  : LoraFactors{.a = product, .b = identity, .scaling = 1};
}

}  // namespace

LoraFactors stack(std::span<const LoraFactors> parts, std::span<const double> weights) {
  EK_CHECK(!parts.empty() && parts.size() == weights.size(), kShape, "stack: ", parts.size(), " parts and ",
           weights.size(), " weights");
  std::vector<at::Tensor> a, b;
  for (size_t i = 0; i < parts.size(); ++i) {
    a.push_back(parts[i].a * (weights[i] * parts[i].scaling));
    b.push_back(with_core(parts[i]));
  }
  return {.a = at::cat(a, -2), .b = at::cat(b, -1), .scaling = 1};
}

LoraFactors truncated(const LoraFactors& factors, int64_t rank) {
  const int64_t kept = std::min(rank, factors.rank());
  return {.a = factors.a.narrow(-2, 0, kept).contiguous(),
          .b = factors.b.narrow(-1, 0, kept).contiguous(),
          .scaling = factors.scaling};
}

LoraFactors padded(const LoraFactors& factors, int64_t rank) {
  const int64_t missing = rank - factors.rank();
  EK_CHECK(missing >= 0, kShape, "padded: rank ", factors.rank(), " to ", rank);
  return {.a = at::constant_pad_nd(factors.a, {0, 0, 0, missing}),
          .b = at::constant_pad_nd(factors.b, {0, missing}),
          .scaling = factors.scaling};
}

LoraFactors rescaled(const LoraFactors& factors, double scaling) {
  const double root = std::sqrt(factors.scaling / scaling);
  return {.a = factors.a * root, .b = factors.b * root, .scaling = scaling};
}

double squared_product_norm(const LoraFactors& factors) {
  const auto a = factors.a.to(at::kDouble), b = factors.b.to(at::kDouble);
  return (at::matmul(b.transpose(-1, -2), b) * at::matmul(a, a.transpose(-1, -2))).sum().item<double>();
}

ProductSvd product_svd(const LoraFactors& factors) {
  const auto [qb, rb] = at::linalg_qr(with_core(factors).to(at::kDouble));
  const auto [qa, ra] = at::linalg_qr(factors.a.to(at::kDouble).transpose(-1, -2));
  const auto [u, s, vt] = at::linalg_svd(at::matmul(rb, ra.transpose(-1, -2)), /*full_matrices=*/false);
  ProductSvd svd{.u = at::matmul(qb, u), .s = s * factors.scaling, .vt = at::matmul(vt, qa.transpose(-1, -2))};
  fix_signs(svd);
  return svd;
}

ProductSvd truncated_svd(const at::Tensor& dense, int64_t rank) {
  constexpr int64_t kExactSide = 512, kOversampling = 8, kIterations = 10;
  const auto d = dense.to(at::kDouble);
  const int64_t side = std::min(d.size(0), d.size(1)), width = std::min(side, rank + kOversampling);
  at::Tensor basis = at::eye(d.size(0), d.options()), core = d;
  if (side > kExactSide) {
    // Columns spread over the matrix: a start that depends on nothing but the shape.
    auto start = d.index_select(1, at::arange(width) * d.size(1) / width);
    basis = std::get<0>(at::linalg_qr(start));
    for (int64_t i = 0; i < kIterations; ++i) basis = std::get<0>(at::linalg_qr(d.mm(d.t().mm(basis))));
    core = basis.t().mm(d);
  }
  const auto [u, s, vt] = at::linalg_svd(core, /*full_matrices=*/false);
  ProductSvd svd{.u = basis.mm(u).narrow(1, 0, rank), .s = s.narrow(0, 0, rank), .vt = vt.narrow(0, 0, rank)};
  fix_signs(svd);
  return svd;
}

void add_to_base(AdapterState& base_change, const AdapterState& delta) {
  for (const auto& [site, part] : delta) {
    if (part.rank() == 0) continue;
    const auto known = base_change.find(site);
    const std::array parts{known == base_change.end() ? part : known->second, part};
    const size_t count = known == base_change.end() ? 1 : 2;
    constexpr std::array kOnce{1.0, 1.0};
    auto total = stack(std::span(parts).last(count), std::span(kOnce).last(count));
    const bool high = total.rank() >= std::min(total.a.size(-1), total.b.size(-2));
    base_change[site] = high ? folded(total) : std::move(total);
  }
}

AdapterState joined(const AdapterState& base_change, const AdapterState& adapters) {
  const bool plain =
      std::none_of(adapters.begin(), adapters.end(), [](const auto& site) { return site.second.core.defined(); });
  if (plain && base_change.empty()) return adapters;
  AdapterState all = base_change;
  add_to_base(all, adapters);
  int64_t rank = 1;
  for (const auto& [site, factors] : all) rank = std::max(rank, factors.rank());
  for (auto& [site, factors] : all) factors = padded(factors, rank);
  return all;
}

}  // namespace evenkeel
