#include "nn/dense/gradients.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

namespace evenkeel::nn {
namespace {

template <typename T>
std::vector<int64_t> rows_not_zero(const at::Tensor& dy_TD) {
  const int64_t width = dy_TD.size(1);
  const T* row = dy_TD.const_data_ptr<T>();
  std::vector<int64_t> live;
  for (int64_t t = 0; t < dy_TD.size(0); ++t, row += width)
    if (std::any_of(row, row + width, [](T x) { return x != T(0); })) live.push_back(t);
  return live;
}

// Returns whether autograd accumulates the gradients of all leaves, as in loss.backward().
bool accumulates() {
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  return !c10::GradMode::is_enabled() && (!chosen || chosen->empty());
}

// Returns whether a node may add to leaf.grad() in place.
bool can_accumulate_into(const at::Tensor& leaf) {
  if (!leaf.is_leaf() || !leaf.requires_grad() || !accumulates()) return false;
  const auto& grad = leaf.grad();
  return grad.defined() && grad.sizes() == leaf.sizes() && grad.scalar_type() == leaf.scalar_type() &&
         grad.is_contiguous();
}

/// Returns tensors of equal sizes that lie at equal distances in one memory as one tensor [n, ...], without a copy.
std::optional<at::Tensor> as_one(at::TensorList tensors) {
  const auto& first = tensors.front();
  const auto place = [&](size_t i) { return tensors[i].storage_offset(); };
  const int64_t step = tensors.size() > 1 ? place(1) - place(0) : first.numel();
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].is_alias_of(first) || tensors[i].sizes() != first.sizes() || !tensors[i].is_contiguous() ||
        place(i) != place(0) + static_cast<int64_t>(i) * step || step < first.numel())
      return std::nullopt;
  auto sizes = first.sizes().vec(), strides = first.strides().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(tensors.size()));
  strides.insert(strides.begin(), step);
  return first.as_strided(sizes, strides);
}

}  // namespace

template <typename T>
T* gradient_buffer(const at::Tensor& leaf, at::Tensor& out) {
  const bool open = can_accumulate_into(leaf);
  if (!open) out = at::zeros_like(leaf, at::MemoryFormat::Contiguous);
  return (open ? leaf.grad() : out).template mutable_data_ptr<T>();
}
template float* gradient_buffer<float>(const at::Tensor&, at::Tensor&);
template double* gradient_buffer<double>(const at::Tensor&, at::Tensor&);

at::Tensor accumulate_gradient(const at::Tensor& leaf, const at::Tensor& part, double scale) {
  if (!can_accumulate_into(leaf)) return part.to(leaf.scalar_type()).mul(scale);
  leaf.grad().add_(part, scale);
  return {};
}

at::Tensor accumulate_product(const at::Tensor& leaf, const at::Tensor& x, const at::Tensor& y, double scale) {
  const bool same = x.scalar_type() == leaf.scalar_type();
  // On a GPU, a product of 16-bit matrices can be added to a float32 matrix.
  const bool widens = x.is_cuda() && x.element_size() == 2 && leaf.scalar_type() == at::kFloat;
  if (!can_accumulate_into(leaf) || !(same || widens)) return accumulate_gradient(leaf, at::mm(x, y), scale);
  auto grad = leaf.grad();
  if (same)
    grad.addmm_(x, y, 1, scale);
  else
    at::addmm_out(grad, grad, x, y, at::kFloat, 1, scale);
  return {};
}

std::vector<at::Tensor> accumulate_slices(at::TensorList leaves, int64_t axis, int64_t begin, const at::Tensor& part) {
  const int64_t length = part.select(0, 0).size(axis);
  const bool open = std::all_of(leaves.begin(), leaves.end(), can_accumulate_into);
  std::vector<at::Tensor> gradients, slices;
  for (const auto& leaf : leaves) gradients.push_back(open ? leaf.grad() : at::zeros_like(leaf));
  if (const auto all = as_one(gradients)) {
    all->narrow(axis < 0 ? axis : axis + 1, begin, length).add_(part);
  } else {
    for (const auto& gradient : gradients) slices.push_back(gradient.narrow(axis, begin, length));
    at::_foreach_add_(slices, part.unbind());
  }
  return open ? std::vector<at::Tensor>(leaves.size()) : gradients;
}

std::vector<at::Tensor> stacked_zeros(at::TensorList tensors) {
  constexpr int64_t kBytes = 64;
  const auto& first = tensors.front();
  const int64_t unit = kBytes / static_cast<int64_t>(first.element_size());
  const int64_t step = (first.numel() + unit - 1) / unit * unit;
  const auto all = at::zeros({static_cast<int64_t>(tensors.size()), step}, first.options().requires_grad(false));
  std::vector<at::Tensor> zeros;
  for (const auto& row : all.unbind()) zeros.push_back(row.narrow(0, 0, first.numel()).view(first.sizes()));
  return zeros;
}

std::optional<at::Tensor> nonzero_rows(const at::Tensor& dy_TD) {
  auto live = dy_TD.scalar_type() == at::kDouble ? rows_not_zero<double>(dy_TD) : rows_not_zero<float>(dy_TD);
  const auto count = static_cast<int64_t>(live.size());
  if (4 * count > 3 * dy_TD.size(0)) return std::nullopt;
  return at::tensor(live, at::kLong);
}

}  // namespace evenkeel::nn
