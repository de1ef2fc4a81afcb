// Compares the kernels of SwiGLU with float64.
#include "both_orders.h"

namespace evenkeel::nn::cuda {
namespace {

using testing::apart_by_norm;

struct SlotSizes {
  int64_t slots, width;
};
// Wide kernels need widths that are multiples of 8.
std::vector<SlotSizes> sizes_of(const Variant& variant) {
  if (variant.wide) return {{1, 8}, {5, 24}, {3, 648}};
  return {{1, 1}, {5, 7}, {3, 131}, {0, 7}};
}

at::Tensor gates(const at::Tensor& gate_up) { return gate_up.narrow(1, 0, gate_up.size(1) / 2); }
at::Tensor ups(const at::Tensor& gate_up) { return gate_up.narrow(1, gate_up.size(1) / 2, gate_up.size(1) / 2); }

void expect_forward(const Variant& variant, const SlotSizes& sizes, bool has_lora) {
  const auto [slots, width] = sizes;
  auto gate_up = random_values({slots, 2 * width}, 1, variant.type) * 3;
  const auto lora = has_lora ? random_values({slots, 2 * width}, 2, variant.type) : at::Tensor();
  const auto sum = has_lora ? (gate_up + lora) : gate_up.clone();
  const auto hidden = unwritten({slots, width}, variant.type);
  run_both_ways(variant.of("swiglu_forward"),
                SwigluForward{gate_up.data_ptr(), address<void>(lora), hidden.data_ptr(), static_cast<int>(width)},
                slots, {gate_up, hidden});
  EXPECT_TRUE(at::equal(gate_up, sum));  // one rounding, as the operators do
  const auto wide = sum.to(at::kDouble);
  if (slots > 0) {
    EXPECT_LT(apart_by_norm(hidden, at::silu(gates(wide)) * ups(wide)), variant.tolerance());
  }
}

TEST(SwigluKernel, AddsTheLoraTermAndMultiplies) {
  for (const auto& variant : kVariants)
    for (const auto& sizes : sizes_of(variant))
      for (const bool has_lora : {false, true}) expect_forward(variant, sizes, has_lora);
}

void expect_backward(const Variant& variant, const SlotSizes& sizes, bool has_lora, bool wants_all) {
  const auto [slots, width] = sizes;
  const auto gate_up = random_values({slots, 2 * width}, 1, variant.type) * 2,
             gradient = random_values({slots, width}, 2, variant.type),
             weights = random_values({slots}, 3, variant.type).abs();
  const auto lora = has_lora ? random_values({slots, width}, 4, variant.type) : at::Tensor();
  const auto choices = at::arange(slots - 1, -1, -1, at::kLong);
  const auto dgu = unwritten({slots, 2 * width}, variant.type);
  const auto dweights = wants_all ? unwritten({slots}, at::kFloat) : at::Tensor(),
             hidden = wants_all ? unwritten({slots, width}, variant.type) : at::Tensor();
  std::vector<at::Tensor> outputs{dgu};
  if (wants_all) outputs.insert(outputs.end(), {dweights, hidden});
  run_both_ways(variant.of("swiglu_backward"),
                SwigluBackward{gate_up.data_ptr(), gradient.data_ptr(), address<void>(lora), weights.data_ptr(),
                               address<long long>(choices), dgu.data_ptr(), address<float>(dweights),
                               address<void>(hidden), static_cast<int>(width)},
                slots, outputs);
  if (slots == 0) return;
  const auto wide = gate_up.to(at::kDouble).requires_grad_(true), w = weights.to(at::kDouble).requires_grad_(true);
  auto dh = gradient.to(at::kDouble);
  if (has_lora) dh = dh + lora.to(at::kDouble);
  const auto h = at::silu(gates(wide)) * ups(wide);
  (w.unsqueeze(1) * h * dh).sum().backward();
  EXPECT_LT(apart_by_norm(dgu, wide.grad()), variant.tolerance());
  if (!wants_all) return;
  EXPECT_LT(apart_by_norm(dweights, w.grad().flip(0)), 3e-6);  // float32, and at the place of the choice
  EXPECT_LT(apart_by_norm(hidden, h.detach()), variant.tolerance());
}

TEST(SwigluKernel, GivesTheGradientsOfInputsAndWeights) {
  for (const auto& variant : kVariants)
    for (const auto& sizes : sizes_of(variant))
      for (const bool has_lora : {false, true})
        for (const bool wants_all : {false, true}) expect_backward(variant, sizes, has_lora, wants_all);
}

TEST(SwigluKernel, KeepsWhatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    auto gate_up =
        at::tensor({infinity, -infinity, nan, -200.0, 1.0, 2.0, 2.0, 2.0, 2.0, nan}, at::kDouble).view({1, 10});
    gate_up = gate_up.to(type);
    const auto expected = at::silu(gates(gate_up).to(at::kDouble)) * ups(gate_up).to(at::kDouble);
    const auto hidden = at::zeros({1, 5}, type);
    run_both_ways(Variant{type, false}.of("swiglu_forward"),
                  SwigluForward{gate_up.data_ptr(), nullptr, hidden.data_ptr(), 5}, 1, {gate_up, hidden});
    EXPECT_TRUE(at::allclose(hidden.to(at::kDouble), expected, 1e-2, 1e-30, /*equal_nan=*/true)) << hidden;
  }
}

}  // namespace
}  // namespace evenkeel::nn::cuda
