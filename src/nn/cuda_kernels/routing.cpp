#include "nn/cuda_kernels/routing.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nn/cuda_kernels/kernels.h"
#include "nn/cuda_kernels/source/arguments.h"

namespace evenkeel::nn::cuda {
namespace {

constexpr unsigned kWarpsOfBlock = 4, kWarpThreads = 32, kMostThreads = 1024;

/// One warp per token.
LaunchShape by_token(int64_t tokens) {
  return {(tokens + kWarpsOfBlock - 1) / kWarpsOfBlock, kWarpsOfBlock * kWarpThreads};
}

/// One thread per expert, up to the most that a block has.
unsigned by_expert(int64_t experts) {
  const auto warps = (static_cast<unsigned>(experts) + kWarpThreads - 1) / kWarpThreads;
  return std::clamp(warps * kWarpThreads, kWarpThreads, kMostThreads);
}

const DriverDevice* device_for_routing(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? nullptr : device_for(Kernel::kRouting, x);
}

}  // namespace

std::optional<Gates> gates(const at::Tensor& logits_TE, int64_t top_k, bool over_selected) {
  const auto* device = device_for_routing(logits_TE);
  if (device == nullptr) return std::nullopt;
  const int64_t tokens = logits_TE.size(0), experts = logits_TE.size(1);
  const auto& options = logits_TE.options();
  Gates out{.weights_TK = at::empty({tokens, top_k}, options),
            .experts_TK = at::empty({tokens, top_k}, options.dtype(at::kLong)),
            .probabilities_TE = over_selected ? at::Tensor() : at::empty({tokens, experts}, options)};
  const RouteForward arguments{address<float>(logits_TE),      address<long long>(out.experts_TK),
                               address<float>(out.weights_TK), address<float>(out.probabilities_TE),
                               static_cast<int>(tokens),       static_cast<int>(experts),
                               static_cast<int>(top_k)};
  device->launch("route_forward", by_token(tokens), &arguments);
  return out;
}

std::optional<at::Tensor> gates_backward(const at::Tensor& dweights_TK, const Gates& of, int64_t experts) {
  const auto* device = device_for_routing(of.weights_TK);
  if (device == nullptr) return std::nullopt;
  const auto dweights = dweights_TK.to(at::kFloat).contiguous();
  const int64_t tokens = dweights.size(0), top_k = dweights.size(1);
  auto dlogits_TE = at::empty({tokens, experts}, of.weights_TK.options());
  const RouteBackward arguments{address<float>(dweights),          address<float>(of.weights_TK),
                                address<long long>(of.experts_TK), address<float>(of.probabilities_TE),
                                address<float>(dlogits_TE),        static_cast<int>(tokens),
                                static_cast<int>(experts),         static_cast<int>(top_k)};
  device->launch("route_backward", by_token(tokens), &arguments);
  return dlogits_TE;
}

std::optional<SortedChoices> sorted_choices(const at::Tensor& experts_TK, int64_t experts) {
  const auto* device = device_for_indices(Kernel::kRouting, experts_TK);
  if (device == nullptr) return std::nullopt;
  const auto chosen = experts_TK.contiguous();
  const int64_t choices = chosen.numel(), slices = (choices + kSliceChoices - 1) / kSliceChoices;
  const auto index = chosen.options(), number = index.dtype(at::kInt);
  SortedChoices out{.order_S = at::empty({choices}, index),
                    .token_S = at::empty({choices}, index),
                    .place_S = at::empty({choices}, index),
                    .ends_E = at::empty({experts}, number),
                    .idle_E = at::empty({experts}, index.dtype(at::kBool))};
  const auto counts = at::empty({slices, experts}, number);
  const int all = static_cast<int>(choices), count = static_cast<int>(experts);
  const auto threads = by_expert(experts);
  const CountChoices counting{address<long long>(chosen), address<int>(counts), all, count};
  const StartSlots starting{address<int>(counts), address<int>(out.ends_E), address<unsigned char>(out.idle_E),
                            static_cast<int>(slices), count};
  const PlaceChoices placing{address<long long>(chosen),
                             address<int>(counts),
                             address<long long>(out.order_S),
                             address<long long>(out.token_S),
                             address<long long>(out.place_S),
                             all,
                             count,
                             static_cast<int>(experts_TK.size(1))};
  device->launch("count_choices", {slices, threads}, &counting);
  device->launch("start_slots", {1, threads}, &starting);
  device->launch("place_choices", {slices, threads}, &placing);
  return out;
}

}  // namespace evenkeel::nn::cuda
