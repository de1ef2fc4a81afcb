#include "nn/kernels/packed_product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/error.h"

namespace evenkeel::kernels {
namespace {

// A weight in a format, its rows farther apart than they are long, and the same numbers in float64.
struct Weight {
  at::Tensor stored, scales, exact_OI;
  StoredMatrix matrix;
};

Weight weight(at::ScalarType dtype, int64_t out, int64_t in, int64_t gap = 3) {
  Weight w;
  if (dtype == at::kChar) {
    w.stored = at::randint(-127, 128, {out, in + gap}, at::kChar);
    w.scales = at::rand({out}) / 127 + 0.001;
    w.exact_OI = w.stored.to(at::kDouble) * w.scales.to(at::kDouble).unsqueeze(1);
  } else {
    w.stored = at::randn({out, in + gap}).to(dtype);
    w.exact_OI = w.stored.to(at::kDouble);
  }
  w.exact_OI = w.exact_OI.narrow(1, 0, in);
  w.matrix = {.data = w.stored.const_data_ptr(), .dtype = dtype, .out = out, .in = in, .stride = in + gap};
  if (dtype == at::kChar) w.matrix.scales = w.scales.const_data_ptr<float>();
  return w;
}

constexpr std::array kFormats{at::kFloat, at::kBFloat16, at::kHalf, at::kChar};

Activations activations(const at::Tensor& x, float scale = 1) {
  return {.data = x.const_data_ptr<float>(), .rows = x.size(0), .stride = x.stride(0), .scale = scale};
}

Result result(const at::Tensor& y, bool add = false) {
  return {.data = y.mutable_data_ptr<float>(), .stride = y.stride(0), .add = add};
}

// A matrix in the upper left corner of a larger one of 7s, which shows what is written beside it.
at::Tensor framed(int64_t rows, int64_t columns) { return at::full({rows + 1, columns + 5}, 7.0f); }
at::Tensor inner(const at::Tensor& frame, int64_t rows, int64_t columns) {
  return frame.narrow(0, 0, rows).narrow(1, 0, columns);
}
void expect_frame_untouched(const at::Tensor& frame, int64_t rows, int64_t columns) {
  EXPECT_TRUE(frame.narrow(0, rows, 1).eq(7).all().item<bool>());
  EXPECT_TRUE(frame.narrow(1, columns, 5).eq(7).all().item<bool>());
}

// |y - exact| against the sum of the sizes of the terms: rounding of float32, whatever cancels.
void expect_close(const at::Tensor& y, const at::Tensor& exact, const at::Tensor& size) {
  const auto error = ((y.to(at::kDouble) - exact).abs() / (size + 1e-30)).max().item<double>();
  EXPECT_LT(error, 1e-6);
}

struct Shape {
  int64_t rows, out, in;
};

// Both directions, with and without `add`, of one shape and format.
void expect_products(const Shape& shape, at::ScalarType dtype, PackedScratch& scratch) {
  SCOPED_TRACE(concat("rows ", shape.rows, " out ", shape.out, " in ", shape.in, " ", c10::toString(dtype)));
  const auto w = weight(dtype, shape.out, shape.in);
  for (const bool forward : {true, false}) {
    const int64_t depth = forward ? shape.in : shape.out, width = forward ? shape.out : shape.in;
    const auto x = at::randn({shape.rows, depth + 2}).narrow(1, 0, depth);
    const auto operand = forward ? w.exact_OI.t() : w.exact_OI;
    const auto product = at::mm(x.to(at::kDouble) * 0.5, operand);
    const auto size = at::mm(x.to(at::kDouble).abs(), operand.abs()) + 7;
    auto frame = framed(shape.rows, width);
    const auto y = inner(frame, shape.rows, width);
    for (const bool add : {true, false}) {
      forward ? times_transposed(activations(x, 0.5f), w.matrix, result(y, add), scratch)
              : times(activations(x, 0.5f), w.matrix, result(y, add), scratch);
      expect_close(y, add ? product + 7 : product, size);
      expect_frame_untouched(frame, shape.rows, width);
    }
  }
}

TEST(PackedProduct, EqualsFloat64AtOddSizesInEveryFormat) {
  at::manual_seed(1);
  PackedScratch scratch;
  for (const auto dtype : kFormats)
    for (const Shape& shape : {Shape{1, 1, 1},
                               {1, 37, 70},
                               {2, 16, 32},
                               {3, 65, 258},
                               {5, 40, 20},
                               {17, 33, 31},
                               {33, 70, 129},
                               {70, 20, 513}})
      expect_products(shape, dtype, scratch);
}

TEST(PackedProduct, TransposedTimesIsTheGradientOfAFactor) {
  at::manual_seed(2);
  PackedScratch scratch;
  for (const auto& [rows, width, in] : {std::array<int64_t, 3>{1, 5, 37}, {31, 20, 70}, {300, 3, 33}, {7, 45, 20}}) {
    const auto w = weight(at::kFloat, rows, in);
    const auto x = at::randn({rows, width});
    auto y = at::full({width, in}, 2.0f);
    transposed_times(activations(x, 2), width, w.matrix, result(y, true), scratch);
    const auto x_t = x.to(at::kDouble).t();
    expect_close(y, at::mm(x_t * 2, w.exact_OI) + 2, at::mm(x_t.abs() * 2, w.exact_OI.abs()) + 2);
  }
}

TEST(PackedProduct, WeightsSideBySideEachGetTheirOwnProduct) {
  at::manual_seed(3);
  PackedScratch scratch;
  const auto gate = weight(at::kBFloat16, 45, 66), up = weight(at::kChar, 33, 66), a = weight(at::kFloat, 20, 66);
  const auto x = at::randn({9, 66});
  std::vector<at::Tensor> alone, together;
  std::vector<SideBySide> products;
  for (const auto* w : {&gate, &up, &a}) {
    alone.push_back(at::ones({9, w->matrix.out}));
    together.push_back(at::ones({9, w->matrix.out}));
    const bool add = w == &up;
    times_transposed(activations(x), w->matrix, result(alone.back(), add), scratch);
    products.push_back({w->matrix, result(together.back(), add)});
  }
  times_transposed(activations(x), products, scratch);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(at::equal(alone[i], together[i]));
}

}  // namespace
}  // namespace evenkeel::kernels
