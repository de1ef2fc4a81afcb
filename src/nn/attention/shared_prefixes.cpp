#include "nn/attention/shared_prefixes.h"

#include <ATen/ATen.h>

#include <cstring>

#include "base/plain/error.h"
#include "base/system/parallel.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::nn {
namespace {

int64_t width_of(const at::Tensor& x) { return x.numel() / x.size(0); }

std::vector<int64_t> with_rows(const at::Tensor& x, int64_t rows) {
  auto sizes = x.sizes().vec();
  sizes[0] = rows;
  return sizes;
}

/// Returns out[i] = x[index[i]].
at::Tensor gather(const at::Tensor& x, const at::Tensor& index) {
  const auto from = x.contiguous();
  auto to = at::empty(with_rows(x, index.size(0)), x.options());
  const auto bytes = static_cast<size_t>(width_of(x)) * x.element_size();
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  const auto* at = index.const_data_ptr<int64_t>();
  for_each_range(index.size(0), kernels::row_grain(width_of(x)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(target + static_cast<size_t>(i) * bytes, source + static_cast<size_t>(at[i]) * bytes, bytes);
  });
  return to;
}

/// Computes out[r] = sum of x[t] over the tokens t of row r.
template <typename T>
void sum_tokens(const T* x, const std::vector<int64_t>& begins, const int64_t* tokens, int64_t width, T* out) {
  const auto rows = static_cast<int64_t>(begins.size()) - 1;
  for_each_range(rows, kernels::row_grain(width), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const int64_t begin = begins[static_cast<size_t>(row)], end = begins[static_cast<size_t>(row) + 1];
      T* sum = out + row * width;
      std::copy_n(x + tokens[begin] * width, width, sum);
      for (int64_t i = begin + 1; i < end; ++i)
        for (int64_t j = 0; j < width; ++j) sum[j] += x[tokens[i] * width + j];
    }
  });
}

}  // namespace

SharedRows::SharedRows(const at::Tensor& rows_T) : rows_T_(rows_T) {
  if (!rows_T.defined()) return;
  const auto* row_of = rows_T.const_data_ptr<int64_t>();
  std::vector<int64_t> firsts, counts;
  for (int64_t t = 0; t < rows_T.size(0); ++t) {
    const auto row = row_of[t], known = static_cast<int64_t>(firsts.size());
    EK_CHECK(row >= 0 && row <= known, kShape, "token ", t, " is on row ", row, ", the tokens before it are on ",
             known);
    if (row == known) firsts.push_back(t), counts.push_back(0);
    ++counts[static_cast<size_t>(row)];
  }
  first_R_ = at::tensor(firsts, at::kLong);
  begins_.assign(1, 0);
  for (const int64_t count : counts) begins_.push_back(begins_.back() + count);
  auto next = begins_;
  tokens_.resize(static_cast<size_t>(rows_T.size(0)));
  for (int64_t t = 0; t < rows_T.size(0); ++t) tokens_[static_cast<size_t>(next[static_cast<size_t>(row_of[t])]++)] = t;
}

at::Tensor SharedRows::expand(const at::Tensor& x_R) const { return rows_T_.defined() ? gather(x_R, rows_T_) : x_R; }
at::Tensor SharedRows::representatives(const at::Tensor& x_T) const {
  return rows_T_.defined() ? gather(x_T, first_R_) : x_T;
}

at::Tensor SharedRows::scatter_to_representatives(const at::Tensor& x_R) const {
  if (!rows_T_.defined()) return x_R;
  return at::zeros(with_rows(x_R, rows_T_.size(0)), x_R.options()).index_copy_(0, first_R_, x_R);
}

at::Tensor SharedRows::sum_by_row(const at::Tensor& x_T) const {
  if (!rows_T_.defined()) return x_T;
  const auto x = x_T.contiguous();
  auto out = at::empty(with_rows(x, first_R_.size(0)), x.options());
  if (x.scalar_type() == at::kDouble)
    sum_tokens(x.const_data_ptr<double>(), begins_, tokens_.data(), width_of(x), out.mutable_data_ptr<double>());
  else
    sum_tokens(x.const_data_ptr<float>(), begins_, tokens_.data(), width_of(x), out.mutable_data_ptr<float>());
  return out;
}

}  // namespace evenkeel::nn
