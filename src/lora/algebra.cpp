#include "lora/algebra.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/mapped_files.h"
#include "base/system/factorizations.h"
#include "lora/payload.h"

namespace evenkeel::lora {
namespace {

at::Tensor with_core(const LoraFactors& factors) {
  return factors.core.defined() ? at::matmul(factors.b, factors.core) : factors.b;
}

/// Makes the entry of largest magnitude of each column of U positive, and changes the sign of the row of V^T with it.
/// Among entries that are equal up to rounding, the first one counts.
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

int64_t expert_count(const LoraFactors& factors) { return factors.a.dim() == 3 ? factors.a.size(0) : 1; }

/// Returns the factors of expert e of a stack, or of the only matrix.
LoraFactors expert(const LoraFactors& factors, int64_t e) {
  if (factors.a.dim() == 2) return factors;
  return {.a = factors.a[e],
          .b = factors.b[e],
          .core = factors.core.defined() ? factors.core[e] : at::Tensor(),
          .scaling = factors.scaling};
}

/// Returns one identity matrix that all experts share.
at::Tensor identity_like(const at::Tensor& product, int64_t size) {
  auto sizes = product.sizes().vec();
  sizes[sizes.size() - 1] = sizes[sizes.size() - 2] = size;
  return at::eye(size, product.options()).expand(sizes);
}

/// Computes B A in float64, one expert at a time, because a float64 copy of a whole stack would be large. The result
/// has at least float32.
at::Tensor exact_product(const LoraFactors& factors) {
  const auto product = [](const at::Tensor& b, const at::Tensor& a) {
    return at::mm(b.to(at::kDouble), a.to(at::kDouble)).to(at::promote_types(a.scalar_type(), at::kFloat));
  };
  if (factors.a.dim() == 2) return product(factors.b, factors.a);
  std::vector<at::Tensor> experts;
  for (int64_t e = 0; e < factors.a.size(0); ++e) experts.push_back(product(factors.b[e], factors.a[e]));
  return at::stack(experts);
}

/// Concatenates one factor of several parts in a tensor that is allocated once.
class Concatenation {
 public:
  /// \param axis  the rank axis  \param rank  sum of the parts' ranks
  Concatenation(int64_t axis, int64_t rank) : axis_(axis), rank_(rank) {}
  void add(const at::Tensor& part) {
    if (!all_.defined()) {
      auto sizes = part.sizes().vec();
      sizes[static_cast<size_t>(part.dim() + axis_)] = rank_;
      all_ = at::empty(sizes, part.options());
    }
    all_.narrow(axis_, filled_, part.size(axis_)).copy_(part);
    filled_ += part.size(axis_);
  }
  const at::Tensor& all() const { return all_; }

 private:
  int64_t axis_, rank_, filled_ = 0;
  at::Tensor all_;
};

/// Replaces a stack whose rank reaches a side of its weight by its product and an identity matrix.
LoraFactors as_product(const LoraFactors& stack) {
  const int64_t in = stack.a.size(-1), out = stack.b.size(-2);
  const auto product = exact_product(stack);
  const auto identity = identity_like(product, std::min(in, out));
  return in < out ? LoraFactors{.a = identity, .b = product, .scaling = 1}
                  : LoraFactors{.a = product, .b = identity, .scaling = 1};
}

}  // namespace

LoraFactors weighted(const LoraFactors& factors, double weight) {
  const double all = weight * factors.scaling;
  return {.a = all == 1 ? factors.a : factors.a * all, .b = with_core(factors), .scaling = 1};
}

LoraFactors side_by_side(std::span<const int64_t> ranks, const PartAt& part_at) {
  const int64_t rank = std::accumulate(ranks.begin(), ranks.end(), int64_t{0});
  Concatenation a(-2, rank), b(-1, rank);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto part = part_at(i);
    EK_CHECK(part.rank() == ranks[i], kInternal, "side_by_side: rank ", part.rank(), ", said to be ", ranks[i]);
    a.add(part.a);
    b.add(part.b);
  }
  return {.a = a.all(), .b = b.all(), .scaling = 1};
}

LoraFactors stack(std::span<const LoraFactors> parts, std::span<const double> weights) {
  EK_CHECK(!parts.empty() && parts.size() == weights.size(), kShape, "stack: ", parts.size(), " parts and ",
           weights.size(), " weights");
  std::vector<int64_t> ranks;
  auto type_of_a = parts[0].a.scalar_type(), type_of_b = parts[0].b.scalar_type();
  for (const auto& part : parts) {
    ranks.push_back(part.rank());
    type_of_a = at::promote_types(type_of_a, part.a.scalar_type());
    type_of_b = at::promote_types(type_of_b, part.b.scalar_type());
  }
  return side_by_side(ranks, [&](size_t i) {
    const auto part = weighted(parts[i], weights[i]);
    return LoraFactors{.a = part.a.to(type_of_a), .b = part.b.to(type_of_b)};
  });
}

LoraFactors truncated(const LoraFactors& factors, int64_t rank) {
  const int64_t lower = std::min(rank, factors.rank());
  return {.a = factors.a.narrow(-2, 0, lower).contiguous(),
          .b = factors.b.narrow(-1, 0, lower).contiguous(),
          .scaling = factors.scaling};
}

LoraFactors padded(const LoraFactors& factors, int64_t rank) {
  const int64_t missing = rank - factors.rank();
  EK_CHECK(missing >= 0, kShape, "padded: rank ", factors.rank(), " to ", rank);
  if (missing == 0) return {.a = factors.a, .b = factors.b, .scaling = factors.scaling};
  return {.a = at::constant_pad_nd(factors.a, {0, 0, 0, missing}),
          .b = at::constant_pad_nd(factors.b, {0, missing}),
          .scaling = factors.scaling};
}

LoraFactors rescaled(const LoraFactors& factors, double scaling) {
  if (factors.scaling == scaling) return factors;
  const double root = std::sqrt(factors.scaling / scaling);
  return {.a = factors.a * root, .b = factors.b * root, .scaling = scaling};
}

double squared_product_norm(const LoraFactors& factors) {
  std::vector<double> squares(static_cast<size_t>(expert_count(factors)));
  for_each_piece(expert_count(factors), [&](int64_t e) {
    const auto one = received(expert(factors, e));
    const auto of_b = at::mm(one.b.t(), one.b), of_a = at::mm(one.a, one.a.t());
    squares[static_cast<size_t>(e)] = (of_b.to(at::kDouble) * of_a.to(at::kDouble)).sum().item<double>();
  });
  return std::accumulate(squares.begin(), squares.end(), 0.0) * factors.scaling * factors.scaling;
}

ProductSvd product_svd(const LoraFactors& factors) {
  const auto [qb, rb] = at::linalg_qr(with_core(factors).to(at::kDouble));
  const auto [qa, ra] = at::linalg_qr(factors.a.to(at::kDouble).transpose(-1, -2));
  const auto [u, s, vt] = at::linalg_svd(at::matmul(rb, ra.transpose(-1, -2)), /*full_matrices=*/false);
  ProductSvd svd{.u = at::matmul(qb, u), .s = s * factors.scaling, .vt = at::matmul(vt, qa.transpose(-1, -2))};
  fix_signs(svd);
  return svd;
}

namespace {

constexpr int64_t kGramRank = 96;       // below this rank, QR decompositions are as fast
constexpr double kGramSmallest = 1e-4;  // relative to the largest value: in float64 its square is exact to 1e-8

ProductSvd narrowed(const ProductSvd& svd, int64_t rank) {
  return {.u = svd.u.narrow(-1, 0, rank), .s = svd.s.narrow(-1, 0, rank), .vt = svd.vt.narrow(-2, 0, rank)};
}

constexpr int64_t kBlockRows = 128;  // rows or columns per block of a triangular product

/// Computes x x^T. Blocks above the diagonal are copied from those below.
at::Tensor gram(const at::Tensor& x_RN) {
  const int64_t rank = x_RN.size(0);
  auto product_RR = at::empty({rank, rank}, x_RN.options());
  for (int64_t begin = 0; begin < rank; begin += kBlockRows) {
    const int64_t count = std::min(kBlockRows, rank - begin);
    const auto row = at::mm(x_RN.narrow(0, begin, count), x_RN.narrow(0, 0, begin + count).t());
    product_RR.narrow(0, begin, count).narrow(1, 0, begin + count).copy_(row);
    product_RR.narrow(1, begin, count).narrow(0, 0, begin + count).copy_(row.t());
  }
  return product_RR;
}

/// Computes b L for a lower triangular matrix L.
at::Tensor times_lower(const at::Tensor& b_NR, const at::Tensor& lower_RR) {
  const int64_t rank = lower_RR.size(0);
  std::vector<at::Tensor> columns;
  for (int64_t begin = 0; begin < rank; begin += kBlockRows) {
    const int64_t count = std::min(kBlockRows, rank - begin), below = rank - begin;
    columns.push_back(at::mm(b_NR.narrow(1, begin, below), lower_RR.narrow(0, begin, below).narrow(1, begin, count)));
  }
  return at::cat(columns, 1);
}

/// Computes b L with L L^T = x. x may be singular.
at::Tensor times_square_root(const at::Tensor& b, const at::Tensor& x) {
  const auto [lower, info] = at::linalg_cholesky_ex(x);
  if (info.item<int64_t>() == 0) return times_lower(b, lower);
  const auto [values, vectors] = at::linalg_eigh(x);
  return at::mm(b, vectors * values.clamp_min(0).sqrt());
}

/// Decomposes B A = (B L) (L^-1 A) with L L^T = A A^T: (B L)^T (B L) = W S^2 W^T, U = B L W / S, V^T = U^T B A / S.
/// \return nothing if a value to keep is too small to be computed from its square
std::optional<ProductSvd> gram_svd(const at::Tensor& b, const at::Tensor& a, const RankChoice& choose_rank) {
  const auto left = times_square_root(b, gram(a));
  const auto [values, vectors] = at::linalg_eigh(gram(left.t()));
  const auto s = values.flip(0).clamp_min(0).sqrt();
  const int64_t most = std::min({choose_rank(s), b.size(0), a.size(1)});
  const auto own = s.narrow(0, 0, most);
  const double smallest = most > 0 ? own[-1].item<double>() : 1;
  if (smallest == 0 || (most > 0 && smallest < kGramSmallest * own[0].item<double>())) return std::nullopt;
  const auto u = at::mm(left, vectors.flip(1).narrow(1, 0, most)) / own;
  ProductSvd svd{.u = u, .s = own, .vt = at::mm(at::mm(u.t(), b), a) / own.unsqueeze(1)};
  fix_signs(svd);
  return svd;
}

/// Returns the factors in float64. If their rank is above a side of the weight, the product and an identity matrix,
/// whose rank is that side, take their place.
LoraFactors wide_factors(const LoraFactors& stacked) {
  const LoraFactors wide{.a = stacked.a.to(at::kDouble), .b = stacked.b.to(at::kDouble), .scaling = 1};
  return wide.rank() > std::min(wide.a.size(1), wide.b.size(0)) ? as_product(wide) : wide;
}

/// Returns the singular triplets of one matrix that are kept. \param stacked  scale 1, without a core
ProductSvd truncated_svd(const LoraFactors& stacked, const RankChoice& choose_rank) {
  const auto factors = stacked.rank() >= kGramRank ? wide_factors(stacked) : stacked;
  if (factors.rank() >= kGramRank) {
    const auto known = gram_svd(factors.b, factors.a, choose_rank);
    if (known) return *known;
  }
  const auto svd = product_svd(factors);
  return narrowed(svd, choose_rank(svd.s));
}

/// Returns the best factors of one matrix of a site, or of expert e of a stack.
LoraFactors best_of(std::span<const LoraFactors> parts, std::span<const double> weights, int64_t e,
                    const RankChoice& choose_rank) {
  std::vector<LoraFactors> own;
  for (const auto& part : parts) own.push_back(received(expert(part, e)));
  const auto stacked = stack(own, weights);
  const auto svd = truncated_svd(stacked, choose_rank);
  return {.a = svd.vt.to(stacked.a.scalar_type()), .b = (svd.u * svd.s).to(stacked.b.scalar_type())};
}

/// Combines the experts' factors into a stack, padded with zeros to the highest rank, in the dtype that `held_as`
/// returns.
LoraFactors stack_of_experts(std::span<const LoraFactors> experts, const HeldAs& held_as) {
  std::vector<int64_t> ranks;
  for (const auto& one : experts) ranks.push_back(one.rank());
  const auto count = static_cast<int64_t>(experts.size()), rank = *std::max_element(ranks.begin(), ranks.end());
  LoraFactors all{.ranks = at::tensor(ranks, at::kLong)};
  for (int64_t e = 0; e < count; ++e) {
    const auto one = held_as(experts[static_cast<size_t>(e)]);
    if (e == 0) {
      all.a = at::zeros({count, rank, one.a.size(1)}, one.a.options());
      all.b = at::zeros({count, one.b.size(0), rank}, one.b.options());
    }
    all.a[e].narrow(0, 0, one.rank()).copy_(one.a);
    all.b[e].narrow(1, 0, one.rank()).copy_(one.b);
  }
  return all;
}

// Enough for all threads; limits the memory for matrices that are being computed.
constexpr size_t kMatricesAtOnce = 64;

using SiteParts = std::map<std::string, std::vector<LoraFactors>>;

struct Matrix {
  const std::vector<LoraFactors>& parts;
  int64_t expert;
};

/// Returns the matrices of the next sites and moves `site` past them.
std::vector<Matrix> next_matrices(SiteParts::const_iterator& site, const SiteParts& parts) {
  std::vector<Matrix> matrices;
  for (; site != parts.end() && matrices.size() < kMatricesAtOnce; ++site) {
    EK_CHECK(!site->second.empty(), kShape, "best_factors: no parts of ", site->first);
    for (int64_t e = 0; e < expert_count(site->second[0]); ++e) matrices.push_back({site->second, e});
  }
  return matrices;
}

std::vector<LoraFactors> best_of_each(std::span<const Matrix> matrices, std::span<const double> weights,
                                      const RankChoice& choose_rank) {
  std::vector<LoraFactors> best(matrices.size());
  for_each_factorization(static_cast<int64_t>(matrices.size()), [&](int64_t i) {
    const auto& [parts, e] = matrices[static_cast<size_t>(i)];
    best[static_cast<size_t>(i)] = best_of(parts, weights, e, choose_rank);
  });
  return best;
}

}  // namespace

AdapterState best_factors(const std::map<std::string, std::vector<LoraFactors>>& parts, std::span<const double> weights,
                          const RankChoice& choose_rank, const HeldAs& held_as) {
  AdapterState sites;
  for (auto next = parts.begin(), site = next; next != parts.end();) {
    const auto best = best_of_each(next_matrices(next, parts), weights, choose_rank);
    for (std::span rest(best); site != next; ++site) {
      const auto& first = site->second[0];
      const auto count = static_cast<size_t>(expert_count(first));
      sites[site->first] = first.a.dim() == 3 ? stack_of_experts(rest.first(count), held_as) : held_as(rest[0]);
      rest = rest.subspan(count);
    }
    release_mapped_pages();
  }
  return sites;
}

namespace {

/// Returns an orthonormal basis of about the `width` leading left singular vectors of `d`, by subspace iteration.
/// \return [out, width]
at::Tensor leading_basis(const at::Tensor& d, int64_t width) {
  constexpr int64_t kIterations = 10;
  // The start is a set of columns spread evenly over the matrix. It depends on the shape only.
  auto basis = d.index_select(1, at::div(at::arange(width) * d.size(1), width, "floor"));
  basis = std::get<0>(at::linalg_qr(basis));
  for (int64_t i = 0; i < kIterations; ++i) basis = std::get<0>(at::linalg_qr(d.mm(d.t().mm(basis))));
  return basis;
}

}  // namespace

ProductSvd truncated_svd(const at::Tensor& dense, int64_t rank) {
  constexpr int64_t kExactSide = 512, kOversampling = 8;
  const auto d = dense.to(at::kDouble);
  const int64_t side = std::min(d.size(0), d.size(1));
  const auto basis = side > kExactSide ? leading_basis(d, std::min(side, rank + kOversampling)) : at::Tensor();
  auto [u, s, vt] = at::linalg_svd(basis.defined() ? basis.t().mm(d) : d, /*full_matrices=*/false);
  u = basis.defined() ? basis.mm(u) : u + 0.0;  // + 0: no zero is negative, as in the other case
  ProductSvd svd{.u = u.narrow(1, 0, rank), .s = s.narrow(0, 0, rank), .vt = vt.narrow(0, 0, rank)};
  fix_signs(svd);
  return svd;
}

void add_to_base(AdapterState& base_change, const AdapterState& delta) {
  for (const auto& [site, part] : delta) {
    if (part.rank() == 0) continue;
    const auto fast = base_change.find(site);
    const std::array parts{fast == base_change.end() ? part : fast->second, part};
    const size_t count = fast == base_change.end() ? 1 : 2;
    constexpr std::array kOnce{1.0, 1.0};
    auto total = stack(std::span(parts).last(count), std::span(kOnce).last(count));
    const bool high = total.rank() >= std::min(total.a.size(-1), total.b.size(-2));
    base_change[site] = high ? as_product(total) : std::move(total);
  }
}

AdapterState joined(const AdapterState& base_change, const AdapterState& adapters) {
  const Joined both(base_change, adapters);
  AdapterState all;
  for (const auto& site : both.sites()) all[site] = both.factors(site);
  return all;
}

Joined::Joined(const AdapterState& base_change, AdapterState adapters)
    : base_change_(base_change), adapters_(std::move(adapters)) {
  const auto has_core = [](const auto& site) { return site.second.core.defined(); };
  as_they_are_ = base_change_.empty() && std::none_of(adapters_.begin(), adapters_.end(), has_core);
  std::set<std::string> sites;
  for (const auto& [site, factors] : base_change_) sites.insert(site);
  for (const auto& [site, factors] : adapters_)
    if (as_they_are_ || factors.rank() > 0) sites.insert(site);
  sites_.assign(sites.begin(), sites.end());
  for (const auto& site : sites_) rank_ = std::max(rank_, rank_of(site));
}

/// Returns the rank that add_to_base() would produce.
int64_t Joined::rank_of(const std::string& site) const {
  int64_t rank = 0, most = 0;
  for (const AdapterState* state : {&base_change_, &adapters_}) {
    const auto found = state->find(site);
    if (found == state->end()) continue;
    const auto& f = found->second;
    rank += f.rank();
    if (f.rank() > 0) most = std::min(f.a.size(-1), f.b.size(-2));
  }
  return as_they_are_ ? rank : std::min(rank, most);
}

LoraFactors Joined::factors(const std::string& site) const {
  const auto change = base_change_.find(site);
  const auto adapter = adapters_.find(site);
  if (as_they_are_) return adapter->second.rank() == rank_ ? adapter->second : padded(adapter->second, rank_);
  AdapterState both;
  if (change != base_change_.end()) both.insert(*change);
  if (adapter != adapters_.end()) add_to_base(both, {*adapter});
  return padded(received(both.at(site)), rank_);
}

}  // namespace evenkeel::lora
