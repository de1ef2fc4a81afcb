#include "nn/aten_engine/grouped.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nn/aten_engine/rows.h"
#include "nn/cuda_kernels/routing.h"
#include "nn/dense/index.h"

namespace evenkeel::nn::aten {
namespace {

constexpr int64_t kAlignment = 16;     // bytes
constexpr int64_t kFewChoices = 1024;  // so many rows are copied in less time than an operator starts

/// Returns whether at::_grouped_mm supports `x`: one of its last two strides is 1, the other a multiple of 16 bytes.
bool fits(const at::Tensor& x) {
  const int64_t rows = x.stride(-2), columns = x.stride(-1), wide = columns == 1 ? rows : columns;
  return (columns == 1 || rows == 1) && wide * static_cast<int64_t>(x.element_size()) % kAlignment == 0;
}

bool fit(const at::Tensor& x, const at::Tensor& y) {
  return x.scalar_type() != at::kDouble && x.size(-2) > 0 && fits(x) && fits(y);
}

/// Returns the type in which experts are sorted: fewer bits sort faster.
at::ScalarType sorted_type(int64_t experts) {
  constexpr int64_t kByteNumbers = 256;
  return experts <= kByteNumbers ? at::kByte : at::kInt;
}

bool fits(const SlotNumbers& numbers, int64_t tokens, int64_t top_k, int64_t experts) {
  return numbers.choices_S.defined() && numbers.begins_T.size(0) == tokens &&
         numbers.choices_S.size(0) == tokens * top_k && numbers.experts_E.size(0) == experts;
}

/// Calls f(e, begin, end) for each group that is not empty. Synchronises with the device.
template <typename F>
void for_each_group(const at::Tensor& ends_E, const F& f) {
  const auto ends = ends_E.to(at::kCPU);
  const auto* end = ends.const_data_ptr<int32_t>();
  int64_t begin = 0;
  for (int64_t e = 0; e < ends.numel(); begin = end[e++])
    if (end[e] > begin) f(e, begin, int64_t{end[e]});
}

}  // namespace

int64_t alignment(at::ScalarType type) { return kAlignment / static_cast<int64_t>(at::elementSize(type)); }

SlotNumbers SlotNumbers::of(int64_t tokens, int64_t top_k, int64_t experts, c10::Device device) {
  const auto index = at::device(device).dtype(at::kLong);
  return {at::arange(tokens * top_k, index), at::arange(0, tokens * top_k, top_k, index),
          at::arange(experts, index.dtype(sorted_type(experts)))};
}

Slots slots_of(const at::Tensor& experts_TK, int64_t groups, const SlotNumbers& numbers, bool gradients) {
  const int64_t tokens = experts_TK.size(0), top_k = experts_TK.size(1);
  if (!fits(numbers, tokens, top_k, groups))
    return slots_of(experts_TK, groups, SlotNumbers::of(tokens, top_k, groups, experts_TK.device()), gradients);
  if (auto own = cuda::sorted_choices(experts_TK, groups))
    return {own->order_S, own->token_S, own->place_S, own->ends_E, numbers.begins_T, own->idle_E.view({-1, 1, 1})};
  const auto& experts_E = numbers.experts_E;
  const auto [sorted_S, order_S] = at::sort(experts_TK.to(experts_E.scalar_type()).reshape({-1}), /*stable=*/true,
                                            /*dim=*/0, /*descending=*/false);
  Slots slots{.order_S = order_S,
              .token_S = top_k == 1                                   ? order_S
                         : gradients || order_S.size(0) > kFewChoices ? at::floor_divide(order_S, top_k)
                                                                      : at::Tensor(),
              // The order is a permutation: no place is written twice.
              .place_S = write_once(at::empty_like(order_S), 0, order_S, numbers.choices_S),
              .ends_E = at::searchsorted(sorted_S, experts_E, /*out_int32=*/true, /*right=*/true),
              .begins_T = numbers.begins_T,
              .idle_E11 = {}};
  if (gradients && !sorted_S.is_cpu())
    slots.idle_E11 = at::searchsorted(sorted_S, experts_E, true, /*right=*/false).eq(slots.ends_E).view({-1, 1, 1});
  return slots;
}

at::Tensor slot_inputs(const at::Tensor& x_TD, const Slots& slots, at::ScalarType type) {
  if (slots.token_S.defined()) return selected_rows(x_TD.to(type), slots.token_S);
  const int64_t choices = slots.order_S.size(0), top_k = choices / x_TD.size(0);
  const auto repeated = at::empty({x_TD.size(0), top_k, x_TD.size(1)}, x_TD.options().dtype(type));
  repeated.copy_(x_TD.unsqueeze(1).expand_as(repeated));
  return repeated.view({choices, -1}).index_select(0, slots.order_S);
}

at::Tensor grouped(const at::Tensor& x_SI, const at::Tensor& w_EIO, const at::Tensor& ends_E) {
  if (fit(x_SI, w_EIO)) return at::_grouped_mm(x_SI, w_EIO, ends_E);
  auto y_SO = at::empty({x_SI.size(0), w_EIO.size(2)}, x_SI.options());
  for_each_group(ends_E, [&](int64_t e, int64_t begin, int64_t end) {
    y_SO.slice(0, begin, end).copy_(at::mm(x_SI.slice(0, begin, end), w_EIO[e]));
  });
  return y_SO;
}

at::Tensor grouped_outer(const at::Tensor& x_SI, const at::Tensor& y_SO, const Slots& slots) {
  if (fit(x_SI, y_SO)) {
    auto sums_EIO = at::_grouped_mm(x_SI.t(), y_SO, slots.ends_E);
    // On a GPU the operator leaves the sums of empty groups undefined.
    return slots.idle_E11.defined() ? sums_EIO.masked_fill_(slots.idle_E11, 0) : sums_EIO;
  }
  auto sums_EIO = at::zeros({slots.ends_E.size(0), x_SI.size(1), y_SO.size(1)}, x_SI.options());
  for_each_group(slots.ends_E, [&](int64_t e, int64_t begin, int64_t end) {
    sums_EIO[e].copy_(at::mm(x_SI.slice(0, begin, end).t(), y_SO.slice(0, begin, end)));
  });
  return sums_EIO;
}

at::Tensor summed_choices(const at::Tensor& y_SD, const Slots& slots, const at::Tensor& weights_TK) {
  constexpr int64_t kSum = 0;
  const auto &place_S = slots.place_S, &begins_T = slots.begins_T;
  if (begins_T.size(0) == place_S.size(0) && !weights_TK.defined()) return y_SD.index_select(0, place_S);
  const auto weights = weights_TK.defined() ? std::optional(weights_TK.reshape({-1})) : std::nullopt;
  return std::get<0>(at::_embedding_bag_forward_only(y_SD, place_S, begins_T, false, kSum, false, weights));
}

}  // namespace evenkeel::nn::aten
