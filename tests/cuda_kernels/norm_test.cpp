// Compares the kernels of RMSNorm and rotary positions with float64.
#include "both_orders.h"

namespace evenkeel::nn::cuda {
namespace {

using testing::apart_by_norm;
constexpr double kEps = 1e-5;

at::Tensor normed(const at::Tensor& x, const at::Tensor& factors) {
  return x * at::rsqrt(x.square().mean(1, true) + kEps) * factors;
}

at::Tensor rotated(const at::Tensor& x_THP, const at::Tensor& cos_TP, const at::Tensor& sin_TP) {
  const int64_t half = x_THP.size(2) / 2;
  const auto first = x_THP.narrow(2, 0, half), second = x_THP.narrow(2, half, half);
  return x_THP * cos_TP.unsqueeze(1) + at::cat({-second, first}, 2) * sin_TP.unsqueeze(1);
}

/// Heads of tokens, and the width of a norm: of one head or of all.
struct Heads {
  int64_t tokens, heads, head_width, norm_width;  // norm_width 0: no norm
  bool rotates = true;
};

struct HeadCase {
  HeadCase(const Heads& of, at::ScalarType type) : heads(of) {
    const int64_t width = of.norm_width > 0 ? of.norm_width : of.head_width;
    x = random_values({of.tokens, of.heads, of.head_width}, 1, type) * 2;
    dy = random_values(x.sizes(), 2, type);
    if (of.norm_width > 0) factors = testing::random_tensor({width}, 3).to(at::kFloat);
    const auto angle = testing::random_tensor({of.tokens, of.head_width / 2}, 4) * 3;
    if (of.rotates)
      cos = at::cat({angle.cos(), angle.cos()}, 1).to(at::kFloat),
      sin = at::cat({angle.sin(), angle.sin()}, 1).to(at::kFloat);
    rows = of.tokens * of.heads * of.head_width / width, row_width = width;
  }
  /// Returns y in float64, for x with values of float64.
  at::Tensor reference(const at::Tensor& from) const {
    auto y = from;
    if (factors.defined()) y = normed(y.reshape({rows, row_width}), factors.to(at::kDouble)).view(x.sizes());
    return cos.defined() ? rotated(y, cos.to(at::kDouble), sin.to(at::kDouble)) : y;
  }
  int per_token() const { return static_cast<int>(heads.heads * heads.head_width / row_width); }

  Heads heads;
  at::Tensor x, dy, factors, cos, sin;
  int64_t rows = 0, row_width = 0;
};

void expect_heads(const Variant& variant, const Heads& heads) {
  const HeadCase c(heads, variant.type);
  const auto y = unwritten(c.x.sizes(), variant.type), dx = unwritten(c.x.sizes(), variant.type),
             rms = unwritten({c.rows}, at::kFloat);
  const int width = static_cast<int>(c.row_width), head = static_cast<int>(heads.head_width);
  run_both_ways(variant.of("head_norm_forward"),
                HeadNormForward{c.x.data_ptr(), address<float>(c.factors), y.data_ptr(), address<float>(rms),
                                address<float>(c.cos), address<float>(c.sin), width, head, c.per_token(), kEps},
                c.rows, {y, rms});
  run_both_ways(
      variant.of("head_norm_backward"),
      HeadNormBackward{c.dy.data_ptr(), c.x.data_ptr(), address<float>(c.factors), address<float>(rms),
                       address<float>(c.cos), address<float>(c.sin), dx.data_ptr(), width, head, c.per_token()},
      c.rows, {dx});
  if (heads.tokens == 0) return;
  const auto from = c.x.to(at::kDouble).requires_grad_(true), expected = c.reference(from);
  expected.backward(c.dy.to(at::kDouble));
  EXPECT_LT(apart_by_norm(y, expected.detach()), variant.tolerance());
  EXPECT_LT(apart_by_norm(dx, from.grad()), variant.tolerance());
}

TEST(NormKernel, NormalisesHeadsAndRotatesThem) {
  for (const auto& variant : kVariants) {
    const int64_t head = variant.wide ? 16 : 6;
    for (const int64_t norm_width : {head, 3 * head, int64_t{0}}) expect_heads(variant, {5, 3, head, norm_width});
    expect_heads(variant, {5, 3, head, head, /*rotates=*/false});
    expect_heads(variant, {1, 1, head, head});
    expect_heads(variant, {0, 3, head, 3 * head});
    expect_heads(variant, {2, 5, 16 * head, 5 * 16 * head});  // more values than threads
  }
}

TEST(NormKernel, KeepsWhatIsNotFinite) {
  auto x = at::ones({2, 4}, at::kFloat), factors = at::ones({4}, at::kFloat);
  x[0][1] = std::numeric_limits<float>::quiet_NaN(), x[1][2] = std::numeric_limits<float>::infinity();
  const auto y = at::zeros({2, 4}, at::kFloat), rms = at::zeros({2}, at::kFloat);
  run_both_ways("head_norm_forward_f32",
                HeadNormForward{x.data_ptr(), address<float>(factors), y.data_ptr(), address<float>(rms), nullptr,
                                nullptr, 4, 4, 1, kEps},
                2, {y, rms});
  EXPECT_TRUE(at::isnan(y[0]).all().item<bool>());
  EXPECT_TRUE(at::isnan(y[1][2]).item<bool>());
}

/// \param exact  whether the norm has float32, whatever is added
void expect_residual(const Variant& variant, int64_t rows, int64_t width, bool adds, bool exact) {
  const auto norm_type = exact ? at::kFloat : variant.type;
  const auto x = random_values({rows, width}, 1, at::kFloat), factors = random_values({width}, 3, at::kFloat),
             dsum = adds ? random_values({rows, width}, 4, at::kFloat) : at::Tensor(),
             dy = random_values({rows, width}, 5, norm_type);
  const auto added = adds ? random_values({rows, width}, 2, variant.type) : at::Tensor();
  const auto sum = adds ? unwritten({rows, width}, at::kFloat) : x, y = unwritten({rows, width}, norm_type),
             rms = unwritten({rows}, at::kFloat), dx = unwritten({rows, width}, at::kFloat),
             dadded = adds ? unwritten({rows, width}, variant.type) : at::Tensor();
  run_both_ways(
      variant.of("residual_norm_forward"),
      ResidualNormForward{address<float>(x), address<void>(added), address<float>(factors), address<float>(sum),
                          exact ? nullptr : y.data_ptr(), exact ? address<float>(y) : nullptr, address<float>(rms),
                          static_cast<int>(width), kEps},
      rows, {sum, y, rms});
  std::vector<at::Tensor> outputs{dx};
  if (adds) outputs.push_back(dadded);
  run_both_ways(
      variant.of("residual_norm_backward"),
      ResidualNormBackward{exact ? nullptr : dy.data_ptr(), exact ? address<float>(dy) : nullptr, address<float>(dsum),
                           address<float>(sum), address<float>(factors), address<float>(rms), address<float>(dx),
                           address<void>(dadded), static_cast<int>(width)},
      rows, outputs);
  if (rows == 0) return;
  const auto from = x.to(at::kDouble).requires_grad_(true);
  const auto r = adds ? from + added.to(at::kDouble) : from * 1;
  const auto expected = normed(r, factors.to(at::kDouble));
  auto loss = (expected * dy.to(at::kDouble)).sum();
  if (adds) loss = loss + (r * dsum.to(at::kDouble)).sum();
  loss.backward();
  EXPECT_LT(apart_by_norm(sum, r.detach()), 1e-6);
  EXPECT_LT(apart_by_norm(y, expected.detach()), exact ? 1e-6 : variant.tolerance());
  EXPECT_LT(apart_by_norm(dx, from.grad()), 3e-6);
  if (adds) {
    EXPECT_LT(apart_by_norm(dadded, from.grad()), variant.tolerance());
  }
}

TEST(NormKernel, AddsToTheResidualStreamAndNormalises) {
  for (const auto& variant : kVariants)
    for (const bool adds : {false, true})
      for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{{0, 8}, {1, 8}, {3, 24}, {2, 648}})
        for (const bool exact : {false, true})
          expect_residual(variant, rows, variant.wide ? width : width - 1, adds, exact);
}

}  // namespace
}  // namespace evenkeel::nn::cuda
