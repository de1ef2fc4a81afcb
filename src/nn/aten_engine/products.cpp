#include "nn/aten_engine/products.h"

#include <ATen/ATen.h>

#include <span>

namespace evenkeel::nn::aten {
namespace {

using Weights = std::span<const at::Tensor>;

/// Returns whether `lower` begins where `upper` ends.
bool is_below(const at::Tensor& lower, const at::Tensor& upper) {
  return lower.is_alias_of(upper) && lower.scalar_type() == upper.scalar_type() && lower.size(1) == upper.size(1) &&
         lower.is_contiguous() && upper.is_contiguous() &&
         lower.storage_offset() == upper.storage_offset() + upper.numel();
}

/// Returns how many of the first weights lie one below the other.
size_t adjacent(Weights weights) {
  size_t count = 1;
  while (count < weights.size() && is_below(weights[count], weights[count - 1])) ++count;
  return count;
}

size_t of_equal_sizes(Weights weights) {
  size_t count = 1;
  while (count < weights.size() && weights[count].sizes() == weights[0].sizes()) ++count;
  return count;
}

/// Multiplies adjacent weights as one matrix. The results are its columns.
void append_columns(const at::Tensor& x_TI, Weights weights, std::vector<at::Tensor>& results) {
  std::vector<int64_t> sizes;
  int64_t rows = 0;
  for (const auto& weight : weights) sizes.push_back(weight.size(0)), rows += weight.size(0);
  const auto all_OI = weights[0].as_strided({rows, weights[0].size(1)}, {weights[0].size(1), 1});
  const auto parts = at::mm(x_TI, all_OI.to(x_TI.scalar_type()).t()).split_with_sizes(sizes, 1);
  results.insert(results.end(), parts.begin(), parts.end());
}

/// Multiplies adjacent weights of equal sizes as a batch. The results are contiguous.
void append_batch(const at::Tensor& x_TI, Weights weights, std::vector<at::Tensor>& results) {
  const auto count = std::ssize(weights);
  const int64_t out = weights[0].size(0), in = weights[0].size(1);
  const auto all_NOI = weights[0].as_strided({count, out, in}, {out * in, in, 1}).to(x_TI.scalar_type());
  const auto parts = at::bmm(x_TI.unsqueeze(0).expand({count, -1, -1}), all_NOI.transpose(1, 2)).unbind();
  results.insert(results.end(), parts.begin(), parts.end());
}

}  // namespace

std::vector<at::Tensor> products(const at::Tensor& x_TI, const std::vector<at::Tensor>& weights, bool contiguous) {
  std::vector<at::Tensor> results;
  for (size_t first = 0; first < weights.size();) {
    const auto rest = Weights(weights).subspan(first);
    const auto beside = rest.first(x_TI.is_cpu() ? 1 : adjacent(rest)), alike = beside.first(of_equal_sizes(beside));
    const auto now = alike.size() == beside.size() || contiguous ? alike : beside;
    if (now.size() == 1)
      results.push_back(at::mm(x_TI, now[0].to(x_TI.scalar_type()).t()));
    else
      (now.size() == alike.size() ? append_batch : append_columns)(x_TI, now, results);
    first += now.size();
  }
  return results;
}

}  // namespace evenkeel::nn::aten
