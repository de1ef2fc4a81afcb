#include "lora/adapter.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "base/plain/error.h"
#include "base/random/random.h"

namespace evenkeel::lora {

std::vector<int64_t> stacked_shape(const Site& site, int64_t rows, int64_t columns) {
  return site.experts > 0 ? std::vector<int64_t>{site.experts, rows, columns} : std::vector<int64_t>{rows, columns};
}

std::vector<int64_t> shape_of(const Site& site, const Factor& factor, int64_t rank) {
  return stacked_shape(site, factor.ranked_rows ? rank : site.out, factor.ranked_columns ? rank : site.in);
}

int64_t values_in(const AdapterState& adapters) {
  int64_t values = 0;
  for (const auto& [name, factors] : adapters)
    for (const auto& factor : kFactors)
      if (const auto& tensor = factors.*factor.tensor; tensor.defined()) values += tensor.numel();
  return values;
}

std::string layout_text(const Sites& sites) {
  std::string text;
  for (const auto& [name, site] : sites) text += concat(name, ' ', site.experts, ' ', site.in, ' ', site.out, '\n');
  return text;
}

double LoraScale::of(int64_t r) const {
  return alpha / static_cast<double>(mode == LoraScaleMode::kFixedAlpha ? r : rank);
}

LoraFactors make_lora(const std::string& name, const Site& site, int64_t rank, double scaling, uint64_t seed) {
  EK_CHECK(rank > 0, kConfig, "rank of ", name, " is ", rank, ", allowed: 1 or more");
  EK_CHECK(site.in > 0 && site.out > 0 && site.experts >= 0, kInternal, "make_lora: site ", name, " has no size");
  const auto a = at::empty(shape_of(site, kFactorA, rank), at::kFloat);
  const double bound = 1.0 / std::sqrt(static_cast<double>(site.in));
  const int64_t size = rank * site.in;
  auto* data = a.mutable_data_ptr<float>();
  at::parallel_for(0, std::max<int64_t>(site.experts, 1), 1, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e)
      RandomStream(seed, "lora/" + name, static_cast<uint64_t>(e))
          .fill_uniform({data + e * size, static_cast<size_t>(size)}, -bound, bound);
  });
  return {.a = a, .b = at::zeros(shape_of(site, kFactorB, rank), at::kFloat), .scaling = scaling};
}

AdapterState make_adapters(const Sites& sites, int64_t rank, double scaling, uint64_t seed) {
  AdapterState adapters;
  for (const auto& [name, site] : sites) adapters.emplace(name, make_lora(name, site, rank, scaling, seed));
  return adapters;
}

LoraFactors zero_factors(const Site& site, int64_t rank, double scaling) {
  return {.a = at::zeros(shape_of(site, kFactorA, rank), at::kFloat),
          .b = at::zeros(shape_of(site, kFactorB, rank), at::kFloat),
          .scaling = scaling};
}

at::Tensor delta_weight(const LoraFactors& factors) {
  const auto left = factors.core.defined() ? at::matmul(factors.b, factors.core) : factors.b;
  return at::matmul(left, factors.a).mul_(factors.scaling);
}

AdapterState clone(const AdapterState& adapters) {
  AdapterState copy;
  const auto copied = [](const at::Tensor& t) { return t.defined() ? t.detach().clone() : t; };
  for (const auto& [name, f] : adapters)
    copy.emplace(name, LoraFactors{copied(f.a), copied(f.b), copied(f.core), f.scaling, f.ranks});
  return copy;
}

AdapterState completed(const AdapterState& sent, const AdapterState& fixed) {
  AdapterState whole = sent;
  for (auto& [site, factors] : whole) {
    const auto known = fixed.find(site);
    if (known == fixed.end()) continue;
    if (!factors.a.defined()) factors.a = known->second.a;
    if (!factors.b.defined()) factors.b = known->second.b;
  }
  return whole;
}

bool is_finite(const at::Tensor& values) {
  if (!values.defined() || values.numel() == 0) return true;
  // at::aminmax() returns NaN if any value is NaN, and needs no temporary tensor.
  const auto [low, high] = at::aminmax(values);
  return std::isfinite(low.item<double>()) && std::isfinite(high.item<double>());
}

void check_finite(const AdapterState& adapters, std::string_view who) {
  for (const auto& [name, f] : adapters)
    EK_CHECK(is_finite(f.a) && is_finite(f.b) && is_finite(f.core), kNumeric, who, ": the adapter of ", name,
             " holds a value that is not finite");
}

}  // namespace evenkeel::lora
