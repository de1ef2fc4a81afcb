#include "nn/aten_engine/rows.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "nn/cuda_kernels/rows.h"

namespace evenkeel::nn::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Sums the gathered rows of each source row. The operator is one kernel, which adds in the order of order_N in float32
/// or wider; a source row that is not gathered gets zeros.
at::Tensor summed_by_row(const at::Tensor& x_N, const at::Tensor& order_N, const at::Tensor& begins_R) {
  if (auto own = cuda::summed_rows(x_N, {}, order_N, begins_R, {})) return *std::move(own);
  constexpr int64_t kSum = 0;
  auto sizes = x_N.sizes().vec();
  sizes[0] = begins_R.size(0);
  if (sizes[0] == 0) return at::zeros(sizes, x_N.options());
  const auto rows_N = x_N.reshape({x_N.size(0), -1}).contiguous();
  return std::get<0>(at::_embedding_bag_forward_only(rows_N, order_N, begins_R, false, kSum)).view(sizes);
}

struct GatherNode : torch::autograd::Function<GatherNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_R, const RowIndex& index) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // the operators of a node need no graph
    ctx->save_for_backward({index.order_N, index.begins_R});
    return selected_rows(x_R, index.from_N);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = ctx->get_saved_variables();
    return {summed_by_row(grads[0], saved[0], saved[1]), at::Tensor()};
  }
};

}  // namespace

std::vector<int32_t> ints(std::span<const int64_t> values) {
  std::vector<int32_t> result;
  for (const int64_t value : values) result.push_back(static_cast<int32_t>(value));
  return result;
}

size_t IndexUpload::add(std::span<const int64_t> values) {
  values_.insert(values_.end(), values.begin(), values.end());
  begins_.push_back(static_cast<int64_t>(values_.size()));
  counts_.push_back(std::ssize(values));
  return counts_.size() - 1;
}

/// Adds numbers of 32 bits, two in the place of one of 64.
template <typename T>
size_t IndexUpload::add_pairs(std::span<const T> values) {
  std::vector<int64_t> pairs((values.size() + 1) / 2, 0);
  std::memcpy(pairs.data(), values.data(), values.size_bytes());
  const size_t number = add(pairs);
  counts_[number] = std::ssize(values);
  return number;
}

size_t IndexUpload::add(std::span<const int32_t> values) { return add_pairs(values); }
size_t IndexUpload::add(std::span<const float> values) { return add_pairs(values); }

void IndexUpload::send(c10::Device device) {
  all_ = at::empty({static_cast<int64_t>(values_.size())},
                   at::TensorOptions().dtype(at::kLong).pinned_memory(!device.is_cpu()));
  std::copy(values_.begin(), values_.end(), all_.mutable_data_ptr<int64_t>());
  all_ = all_.to(device, /*non_blocking=*/true);
}

at::Tensor IndexUpload::sent(size_t number) const { return all_.slice(0, begins_[number], begins_[number + 1]); }

at::Tensor IndexUpload::sent_ints(size_t number) const {
  return sent(number).view(at::kInt).narrow(0, 0, counts_[number]);
}

at::Tensor IndexUpload::sent_floats(size_t number) const {
  return sent(number).view(at::kFloat).narrow(0, 0, counts_[number]);
}

RowIndexUpload::RowIndexUpload(std::span<const int64_t> from_N, int64_t rows, IndexUpload& upload)
    : from_(upload.add(from_N)) {
  std::vector<int64_t> begins(static_cast<size_t>(rows) + 1, 0), order(from_N.size());
  for (const int64_t row : from_N) ++begins[static_cast<size_t>(row) + 1];
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  begins_ = upload.add(std::span(begins).first(static_cast<size_t>(rows)));
  for (size_t n = 0; n < from_N.size(); ++n)
    order[static_cast<size_t>(begins[static_cast<size_t>(from_N[n])]++)] = static_cast<int64_t>(n);
  order_ = upload.add(order);
}

RowIndex RowIndexUpload::sent(const IndexUpload& upload) const {
  return {upload.sent(from_), upload.sent(order_), upload.sent(begins_)};
}

at::Tensor selected_rows(const at::Tensor& x, const at::Tensor& index_N) {
  if (auto own = cuda::gathered_rows(x, index_N)) return *std::move(own);
  return x.index_select(0, index_N);
}

at::Tensor gather_rows(const at::Tensor& x_R, const RowIndex& index) { return GatherNode::apply(x_R, index); }

}  // namespace evenkeel::nn::aten
