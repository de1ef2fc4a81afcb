/// \file  Implements the server-side algebra of rank methods: stacking, truncating, padding and decomposing factors.
/// The product B A is avoided where possible. One call handles all experts of a stack. Dimension names: R rank.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lora/adapter.h"

namespace evenkeel::lora {

/// Returns weight * scaling * B A as factors with scaling 1 and without a core. Weight and scaling are multiplied into
/// A, a core into B. Factors that do not change are not copied.
LoraFactors weighted(const LoraFactors& factors, double weight);

/// Returns part i of a sum, with scaling 1 and without a core.
using PartAt = std::function<LoraFactors(size_t i)>;

/// Returns factors of the sum of the parts' B A, in the dtype of the first part: the B are concatenated along columns,
/// the A along rows. Each part is requested once and then released, so only the result and one part are in memory.
/// \param ranks  the rank of each part
/// \throws kInternal when the rank of a part differs from `ranks`
LoraFactors side_by_side(std::span<const int64_t> ranks, const PartAt& part_at);

/// Returns factors of sum_i weights[i] scaling_i B_i A_i by concatenation, in the widest dtype of the parts. Source:
/// FLoRA (Wang et al. 2024), eq. 5. \throws kShape without parts, or if there is not one weight per part.
LoraFactors stack(std::span<const LoraFactors> parts, std::span<const double> weights);

/// Returns the first `rank` rows of A and columns of B, or all if there are fewer. The scaling is unchanged. The
/// results of this function and of padded() have neither core nor `ranks`.
LoraFactors truncated(const LoraFactors& factors, int64_t rank);

/// Pads the rows of A and columns of B with zeros to `rank`. The scaling is unchanged; nothing is copied if the rank is
/// already reached. truncated(padded(f, r), f.rank()) equals f. \throws kShape when the rank is above `rank`.
LoraFactors padded(const LoraFactors& factors, int64_t rank);

/// Returns the same product with another scaling: A and B are each multiplied by sqrt(old scaling / new scaling).
/// REQUIRES scalings above 0 and no core.
LoraFactors rescaled(const LoraFactors& factors, double scaling);

/// Returns ||scaling B A||_F^2, summed over all experts, from r x r products: sum of (B^T B) * (A A^T). Products are
/// computed in the factors' dtype, but at least float32, and added in float64. Each thread widens one expert's factors
/// at a time. REQUIRES no core.
double squared_product_norm(const LoraFactors& factors);

/// The singular value decomposition scaling B A = U diag(S) V^T with k = min(out, in, R) singular values.
struct ProductSvd {
  at::Tensor u;   ///< [*, out, k], orthonormal columns; the entry of largest magnitude of each is positive
  at::Tensor s;   ///< [*, k], descending
  at::Tensor vt;  ///< [*, k, in], orthonormal rows
};
/// Computes the decomposition from thin QRs of B and A^T and the SVD of a small core, in float64. Cost: O((out + in)
/// R^2 + R^3). The signs are fixed, so equal input gives equal bits. REQUIRES a scaling of 0 or more.
ProductSvd product_svd(const LoraFactors& factors);

/// Converts finished factors to the dtype in which they are stored.
using HeldAs = std::function<LoraFactors(const LoraFactors& factors)>;

/// Returns how many singular triplets of one matrix to keep, 0 .. k. \param s  [k] float64, descending
using RankChoice = std::function<int64_t(const at::Tensor& s)>;

/// Returns the best low-rank factors of sum_i weights[i] scaling_i B_i A_i for each site: A = V^T[:p], B = U[:, :p]
/// diag(S[:p]), scaling 1, in the parts' dtype but at least float32. `held_as` then converts them. `choose_rank`
/// chooses p for each matrix. The factors of a stack have zeros beyond the p of an expert, and `ranks` holds p.
///
/// R is the sum of the ranks of a matrix. If it is 96 or more and above min(in, out), the product is formed, and it and
/// an identity matrix take the place of the factors: R is then min(in, out). If R is 96 or more and every kept singular
/// value is at least 1e-4 of the largest, Gram matrices are used. Values and B A then agree with product_svd() to 1e-7
/// of the largest value. The bits do not depend on the number of threads.
///
/// Memory in addition to the result: the parts of as many consecutive sites as give 64 matrices or more, and for each
/// thread the parts of one matrix in float64. Pages of mapped parts are released afterwards.
/// U and V are never formed whole. Cost of a matrix: (in + 2 out) R^2 multiply-adds and an R x R eigenproblem.
/// \param weights  one per part, the same for every site
/// \throws kShape for a site without parts
AdapterState best_factors(
    const std::map<std::string, std::vector<LoraFactors>>& parts, std::span<const double> weights,
    const RankChoice& choose_rank, const HeldAs& held_as = [](const LoraFactors& made) { return made; });

/// Returns the `rank` largest singular triplets of a dense matrix [out, in] in float64, with signs as in product_svd().
/// The result is exact if the shorter side is at most 512. Larger matrices use subspace iteration (10 rounds, fixed
/// start) at a cost of O(out in rank). For the signs of three gradients of SmolLM2-135M, at ranks 16, 64 and 128, the
/// result held at least 99.94 % of the squared singular values of the exact one. REQUIRES rank <= min(out, in).
ProductSvd truncated_svd(const at::Tensor& dense, int64_t rank);

/// Adds `delta` to the accumulated change of the base weights by stacking. When the stacked rank of a site reaches
/// min(in, out), its factors are replaced by the product B A and an identity matrix, so a site never takes more than
/// min(in, out) (in + out) values. All experts share one identity. Stacked factors keep the dtype of the deltas:
/// bfloat16 takes two bytes a value and is not rounded. The product is summed in float64 and stored in float32.
/// (docs/decisions/0014-base-changing-methods.md)
void add_to_base(AdapterState& base_change, const AdapterState& delta);

/// Returns one plain adapter with the combined effect of a base change and adapters. The result has no core and one
/// rank for all sites: lower ranks are padded with zeros. Without a base change and cores, the adapters are otherwise
/// unchanged. With any, the result has scaling 1 and is float32 or wider.
AdapterState joined(const AdapterState& base_change, const AdapterState& adapters);

/// Computes joined() one site at a time, so that only one site of a large base change is widened. `base_change` must
/// outlive the object.
class Joined {
 public:
  /// Determines sites and rank; computes no factors yet.
  Joined(const AdapterState& base_change, AdapterState adapters);

  const std::vector<std::string>& sites() const { return sites_; }
  /// Returns the rank of every site, 0 without sites.
  int64_t rank() const { return rank_; }
  /// Returns the joined factors of one site. REQUIRES an entry of sites().
  LoraFactors factors(const std::string& site) const;

 private:
  int64_t rank_of(const std::string& site) const;

  const AdapterState& base_change_;
  AdapterState adapters_;
  bool as_they_are_;
  std::vector<std::string> sites_;
  int64_t rank_ = 0;
};

}  // namespace evenkeel::lora
