#include "train/gradient_alignment.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/plain/error.h"
#include "base/random/random.h"

namespace evenkeel::train {
namespace {

/// Calls `use` with packed batches of `size` rows.
template <typename Use>
void for_batches(std::span<const data::Example> rows, int64_t size, Use&& use) {
  const auto step = static_cast<size_t>(size);
  for (size_t first = 0; first < rows.size(); first += step) {
    std::vector<const data::Example*> batch;
    for (const auto& row : rows.subspan(first, std::min(step, rows.size() - first))) batch.push_back(&row);
    use(data::pack(batch));
  }
}

/// Sums over experts, from which cosines are computed.
struct CosineSums {
  double product = 0, gradient = 0, pseudo = 0;
  std::vector<double> shuffled_products{};  ///< one per shuffle; empty if nothing can be shuffled

  void add(const CosineSums& other) {
    product += other.product;
    gradient += other.gradient;
    pseudo += other.pseudo;
    shuffled_products.resize(std::max(shuffled_products.size(), other.shuffled_products.size()));
    for (size_t i = 0; i < other.shuffled_products.size(); ++i) shuffled_products[i] += other.shuffled_products[i];
  }
  std::optional<double> cosine() const {
    if (gradient == 0 || pseudo == 0) return std::nullopt;
    return product / std::sqrt(gradient * pseudo);
  }
  std::optional<ShuffledCosine> shuffled() const {
    if (!cosine() || shuffled_products.empty()) return std::nullopt;
    const auto [least, most] = std::minmax_element(shuffled_products.begin(), shuffled_products.end());
    const double sum = std::accumulate(shuffled_products.begin(), shuffled_products.end(), 0.0);
    const double norms = std::sqrt(gradient * pseudo), count = static_cast<double>(shuffled_products.size());
    const double mean = std::clamp(sum / count, *least, *most);  // a sum of equal numbers rounds
    return ShuffledCosine{mean / norms, *least / norms, *most / norms};
  }
};

/// Sums over all tensors of a layer, float64: product_EE[i, j] of expert i's gradient with expert j's pseudo-gradient,
/// and both squared norms.
struct ExpertSums {
  at::Tensor product_EE, gradient_E, pseudo_E;

  void add(const at::Tensor& gradient, const at::Tensor& pseudo) {
    const auto gradient_EN = gradient.to(at::kDouble).flatten(1), pseudo_EN = pseudo.to(at::kDouble).flatten(1);
    const auto grow = [](at::Tensor& sum, const at::Tensor& part) { sum = sum.defined() ? sum + part : part; };
    grow(product_EE, gradient_EN.matmul(pseudo_EN.t()));
    grow(gradient_E, gradient_EN.square().sum(1));
    grow(pseudo_E, pseudo_EN.square().sum(1));
  }
};

ExpertSums expert_sums(const ExpertGradients& layer) {
  ExpertSums sums;
  for (size_t i = 0; i < layer.gradients.size(); ++i) sums.add(layer.gradients[i], layer.pseudo_gradients.at(i));
  return sums;
}

/// Returns a permutation without a fixed point. REQUIRES count >= 2: about one permutation in three is one.
std::vector<int64_t> derangement(int64_t count, RandomStream& stream) {
  for (;;) {
    auto order = stream.permutation(count);
    bool moves_all = true;
    for (int64_t i = 0; i < count; ++i) moves_all = moves_all && order[static_cast<size_t>(i)] != i;
    if (moves_all) return order;
  }
}

/// \param product_CC  products of the compared experts
std::vector<double> shuffled_products(const at::Tensor& product_CC, RandomStream stream) {
  std::vector<double> sums;
  if (product_CC.size(0) < 2) return sums;
  const auto own = at::arange(product_CC.size(0), at::kLong);
  for (int64_t i = 0; i < ShuffledCosine::kShuffles; ++i) {
    const auto other = at::tensor(derangement(product_CC.size(0), stream), at::kLong);
    sums.push_back(product_CC.index({own, other}).sum().item<double>());
  }
  return sums;
}

/// Fills in `out`. \return the sums that its cosine was computed from
CosineSums compare(const ExpertSums& experts, const at::Tensor& idle_E, RandomStream stream, GradientAlignment& out) {
  const auto compared_C = idle_E.logical_and(experts.gradient_E.gt(0)).nonzero().flatten();
  const auto product_CC = experts.product_EE.index_select(0, compared_C).index_select(1, compared_C);
  const auto pseudo_C = experts.pseudo_E.index_select(0, compared_C);
  out.idle = idle_E.sum().item<int64_t>();
  out.compared = compared_C.numel();
  out.zero = pseudo_C.eq(0).sum().item<int64_t>();
  CosineSums sums{.product = product_CC.trace().item<double>(),
                  .gradient = experts.gradient_E.index_select(0, compared_C).sum().item<double>(),
                  .pseudo = pseudo_C.sum().item<double>(),
                  .shuffled_products = shuffled_products(product_CC, std::move(stream))};
  out.cosine = sums.cosine();
  out.shuffled = sums.shuffled();
  return sums;
}

}  // namespace

std::vector<GradientAlignment> gradient_alignment(std::span<const ExpertGradients> layers, uint64_t seed) {
  std::vector<GradientAlignment> all;
  GradientAlignment together{.layer = "all"};
  CosineSums whole, shuffled;
  for (const auto& layer : layers) {
    auto& one = all.emplace_back(GradientAlignment{.layer = layer.layer});
    RandomStream stream(seed, "pg-alignment-shuffle", all.size());
    const auto sums = compare(expert_sums(layer), layer.idle_E, std::move(stream), one);
    whole.add(sums);
    if (one.compared >= 2) shuffled.add(sums);
    together.idle += one.idle, together.compared += one.compared, together.zero += one.zero;
  }
  together.cosine = whole.cosine();
  together.shuffled = shuffled.shuffled();
  all.push_back(together);
  return all;
}

TensorMap idle_experts(const models::CausalLm& model, models::ForwardOptions forward,
                       std::span<const data::Example> rows, int64_t batch_size) {
  const c10::NoGradGuard no_grad;
  TensorMap counts, idle;
  for_batches(rows, batch_size, [&](const data::PackedBatch& batch) {
    nn::RoutingByLayer routing;
    forward.routing = {&routing, 1};
    model.hidden(batch, forward);
    for (const auto& [layer, stats] : routing)
      counts[layer] = counts.contains(layer) ? counts[layer] + stats.counts : stats.counts;
  });
  for (const auto& [layer, count_E] : counts) idle[layer] = count_E.cpu().eq(0);
  return idle;
}

lora::AdapterState with_loss_gradients(const models::CausalLm& model, models::ForwardOptions forward,
                                       std::span<const data::Example> rows, int64_t batch_size) {
  auto adapters = *forward.adapters;
  EK_CHECK(!adapters.empty(), kConfig,
           "the run has no adapters after a round, only a change of the base: there is no gradient to measure");
  for (auto& [site, factors] : adapters)
    for (const auto& factor : lora::kFactors) {
      auto& tensor = factors.*factor.tensor;
      if (!tensor.defined()) continue;
      tensor = tensor.detach().clone().requires_grad_(true);
      tensor.mutable_grad() = at::zeros_like(tensor);
    }
  forward.adapters = &adapters;
  bool any = false;
  for_batches(rows, batch_size, [&](const data::PackedBatch& batch) {
    const auto loss = model.loss(batch, forward);
    if (loss.count == 0) return;
    (loss.sum / static_cast<double>(loss.count)).backward();
    any = true;
  });
  EK_CHECK(any, kConfig, "the measured rows have no targets");
  return adapters;
}

}  // namespace evenkeel::train
