/// \file  What the servers of rank methods do with factors: stack, cut, pad and decompose, and never form B A where it
/// can be helped. Stacked experts are handled expert by expert in one call. Dimension names: R rank.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lora/adapter.h"

namespace evenkeel {

/// weight scaling B A with scaling 1 and without a core. The weight stands on A alone: on both it would be squared. Not
/// copied where nothing changes.
LoraFactors weighted(const LoraFactors& factors, double weight);

/// The i-th of some parts, of scaling 1 and without a core.
using PartAt = std::function<LoraFactors(size_t i)>;

/// Factors of the sum of the parts' B A: B = [B_0 B_1 ...] side by side, A on top of each other, in the type of the
/// first part. Each part is asked for when its turn comes and let go: one of them is in memory beside the result.
LoraFactors side_by_side(std::span<const int64_t> ranks, const PartAt& part_at);

/// Factors of sum_i weights[i] scaling_i B_i A_i: weighted() parts side by side, in the widest of their types. Source:
/// FLoRA (Wang et al. 2024), eq. 5.
LoraFactors stack(std::span<const LoraFactors> parts, std::span<const double> weights);

/// The first `rank` rows of A and columns of B (all of them when there are no more); scaling stays.
LoraFactors truncated(const LoraFactors& factors, int64_t rank);

/// Rows of A and columns of B filled up with zeros to `rank`, not copied where nothing is missing; scaling stays.
/// truncated(padded(f, r), f.rank()) is f.
LoraFactors padded(const LoraFactors& factors, int64_t rank);

/// sqrt(factor) into both A and B, scaling divided by it: the same product at another scale.
LoraFactors rescaled(const LoraFactors& factors, double scaling);

/// ||scaling B A||_F^2 over all experts, from r x r products: sum of (B^T B) * (A A^T). Products are taken in the
/// factors' type, float32 at least, and added in float64; each thread widens one expert's factors at a time.
double squared_product_norm(const LoraFactors& factors);

/// scaling B A = U diag(S) V^T, k = min(out, in, R) of them.
struct ProductSvd {
  at::Tensor u;   ///< [*, out, k], orthonormal columns; the entry of largest magnitude of each is positive
  at::Tensor s;   ///< [*, k], descending
  at::Tensor vt;  ///< [*, k, in], orthonormal rows
};
/// Through thin QRs of B and A^T and the SVD of a small core, in float64: O((out + in) R^2 + R^3). The signs are fixed,
/// so equal input gives equal bits.
ProductSvd product_svd(const LoraFactors& factors);

/// How the factors of a matrix are held once they are made.
using HeldAs = std::function<LoraFactors(const LoraFactors& factors)>;

/// How many singular triplets of one matrix to keep. \param s  [k] float64, descending. \return 0 .. k
using KeptRank = std::function<int64_t(const at::Tensor& s)>;

/// sum_i weights[i] scaling_i B_i A_i of each site, matrix by matrix cut to its largest singular triplets: A = V^T[:p],
/// B = U[:, :p] diag(S[:p]) with scale 1, in the parts' dtype (float32 for narrower ones); zeros beyond the p of an
/// expert, which `ranks` of a stack holds. Neither a product nor all of U and V is formed, and each thread holds one
/// matrix's parts in float64. From a sum of ranks of 96 on, through Gram matrices where every triplet that is kept is
/// at least 1e-4 of the largest: values and B A then agree with those of product_svd() to 1e-7 of the largest value.
/// Equal bits with any number of threads. Memory beside what is handed back: a stack of experts, or as many other
/// matrices, whose pages leave it again where parts are mapped. Cost of a matrix: (in + 2 out) R^2 multiply-adds, an
/// R x R eigenproblem.
AdapterState best_factors(
    const std::map<std::string, std::vector<LoraFactors>>& parts, std::span<const double> weights, const KeptRank& kept,
    const HeldAs& held_as = [](const LoraFactors& made) { return made; });

/// The `rank` largest singular triplets of a dense matrix [out, in], signs as in product_svd. Exact up to a side of
/// 512; above by subspace iteration (10 rounds, fixed start), whose cost is O(out in rank). float64.
ProductSvd truncated_svd(const at::Tensor& dense, int64_t rank);

/// Adds `delta` to a standing change of base weights, by stacking. When a stack is as high as the smaller side of the
/// weight, it is folded into one product beside an identity, so the memory of a site never exceeds
/// min(in, out) (in + out) values; the identity is one that all experts share. A stack keeps its parts' dtype, so that
/// bfloat16 deltas take two bytes a value and none is rounded; a product is summed in float64 and kept in float32.
/// (docs/decisions/0014-base-changing-methods.md)
void add_to_base(AdapterState& base_change, const AdapterState& delta);

/// One plain adapter with the effect of a standing base change and adapters on top of it: no core, the same rank and
/// scaling global_term_count, float32 or wider. Without a base change and cores the adapters as they are; else scaling
/// 1, filled up with zeros.
AdapterState joined(const AdapterState& base_change, const AdapterState& adapters);

/// The same site by site, so that a large change of the base is widened one site at a time. Borrows `base_change`.
class Joined {
 public:
  Joined(const AdapterState& base_change, AdapterState adapters);

  const std::vector<std::string>& sites() const { return sites_; }
  /// Of every site. 0 without sites
  int64_t rank() const { return rank_; }
  LoraFactors factors(const std::string& site) const;

 private:
  int64_t rank_of(const std::string& site) const;

  const AdapterState& base_change_;
  AdapterState adapters_;
  bool as_they_are_;
  std::vector<std::string> sites_;
  int64_t rank_ = 0;
};

}  // namespace evenkeel
