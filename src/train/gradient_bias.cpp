#include "train/gradient_bias.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/plain/error.h"
#include "train/gradient_alignment.h"

namespace evenkeel::train {
namespace {

int64_t targets_of(std::span<const data::Example> rows) {
  int64_t targets = 0;
  for (const auto& row : rows) targets += row.targets();
  return targets;
}

std::vector<at::Tensor> trained(const lora::LoraFactors& factors, methods::Trainable trainable) {
  if (trainable == methods::Trainable::kCore) return {factors.core};
  if (trainable == methods::Trainable::kB) return {factors.b};
  return {factors.a, factors.b};
}

void add_factors(std::span<const at::Tensor> factors, int64_t targets, LayerGradients& layer) {
  for (const auto& factor : factors)
    layer.factors.push_back(factor.grad().cpu().to(at::kDouble) * static_cast<double>(targets));
}

/// Returns the inner product of x and y over each expert's tensors. \return [E] float64
at::Tensor products_E(const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& y) {
  at::Tensor sum_E;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto product_E = (x[i] * y[i]).flatten(1).sum(1);
    sum_E = sum_E.defined() ? sum_E + product_E : product_E;
  }
  return sum_E;
}

std::vector<at::Tensor> differences(const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& y) {
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < x.size(); ++i) result.push_back(x[i] - y[i]);
  return result;
}

double sum_of(const at::Tensor& values) { return values.sum().item<double>(); }

std::optional<double> ratio(double value, double of) { return of > 0 ? std::optional(value / of) : std::nullopt; }

}  // namespace

ExpertGradientSums expert_gradients(const models::CausalLm& model, models::ForwardOptions forward,
                                    std::span<const data::Example> rows, const lora::Sites& sites,
                                    methods::Trainable trainable) {
  nn::RoutingByLayer routing;
  forward.routing = {&routing, 1};
  const auto adapters = with_loss_gradients(model, forward, rows, static_cast<int64_t>(rows.size()));
  ExpertGradientSums layers;
  for (const auto& [name, site] : sites) {
    const auto own = adapters.find(name);
    if (site.experts == 0 || own == adapters.end()) continue;
    add_factors(trained(own->second, trainable), targets_of(rows), layers[site.moe_layer]);
  }
  EK_CHECK(!layers.empty(), kConfig, "no linear of the experts has an adapter: no gradient of an expert");
  for (auto& [name, layer] : layers) {
    layer.counts_E = routing.at(name).counts.cpu();
    layer.tokens = routing.at(name).tokens;
  }
  return layers;
}

void add_to(ExpertGradientSums& sum, const ExpertGradientSums& other, int64_t sign) {
  for (const auto& [name, layer] : other) {
    auto& own = sum[name];
    if (own.factors.empty()) {
      for (const auto& factor : layer.factors) own.factors.push_back(at::zeros_like(factor));
      own.counts_E = at::zeros_like(layer.counts_E);
    }
    for (size_t i = 0; i < layer.factors.size(); ++i) own.factors[i] = own.factors[i] + sign * layer.factors[i];
    own.counts_E = own.counts_E + sign * layer.counts_E;
    own.tokens += sign * layer.tokens;
  }
}

void BiasSums::add(const BiasSums& other, int64_t sign) {
  const auto factor = static_cast<double>(sign);
  full += factor * other.full, sparse += factor * other.sparse, product += factor * other.product;
  bias_active += factor * other.bias_active, full_idle += factor * other.full_idle;
  predicted += factor * other.predicted;
  experts += sign * other.experts, idle += sign * other.idle;
}

BiasSums bias_sums(const LayerGradients& full, const LayerGradients& sparse, double scale) {
  const double square = scale * scale;
  const auto full_E = products_E(full.factors, full.factors), idle_E = sparse.counts_E.eq(0);
  const auto bias = differences(full.factors, sparse.factors);
  const auto chosen_E = sparse.counts_E.to(at::kDouble) / static_cast<double>(sparse.tokens);
  return {.full = square * sum_of(full_E),
          .sparse = square * sum_of(products_E(sparse.factors, sparse.factors)),
          .product = square * sum_of(products_E(full.factors, sparse.factors)),
          .bias_active = square * sum_of(products_E(bias, bias).masked_fill(idle_E, 0)),
          .full_idle = square * sum_of(full_E.masked_fill(idle_E.logical_not(), 0)),
          .predicted = square * sum_of((1 - chosen_E).square() * full_E),
          .experts = idle_E.numel(),
          .idle = idle_E.sum().item<int64_t>()};
}

BiasMeasures measures_of(const BiasSums& sums) {
  const double active = sums.full - sums.full_idle;
  return {.bias = ratio(sums.bias_active + sums.full_idle, sums.full),
          .bias_active = ratio(sums.bias_active, sums.full),
          .bias_idle = ratio(sums.full_idle, sums.full),
          .predicted = ratio(sums.predicted, sums.full),
          .cosine = ratio(sums.product, std::sqrt(sums.full * sums.sparse)),
          .cosine_active = active > 0 ? ratio(sums.product, std::sqrt(active * sums.sparse)) : std::nullopt,
          .idle_experts = ratio(static_cast<double>(sums.idle), static_cast<double>(sums.experts))};
}

}  // namespace evenkeel::train
