#include "nn/kernels/matmul/gemm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "nn/kernels/matmul/gemm_kernels.h"
#include "nn/kernels/matmul/unpacked_gemm.h"

namespace evenkeel::nn::kernels {
namespace {

// A weight in a storage format, and the same numbers in float64. Its rows are farther apart than they are long.
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

struct Format {
  at::ScalarType dtype;
  Arithmetic arithmetic = Arithmetic::kFp32;

  bool rounds() const { return arithmetic != Arithmetic::kFp32; }
  std::string name() const {
    constexpr std::array kNames{"", " in pairs", " in tiles"};
    return concat(c10::toString(dtype), kNames[static_cast<size_t>(arithmetic)]);
  }
};
constexpr std::array kFormats{Format{at::kFloat},
                              Format{at::kBFloat16},
                              Format{at::kHalf},
                              Format{at::kChar},
                              Format{at::kBFloat16, Arithmetic::kBf16Pairs},
                              Format{at::kChar, Arithmetic::kBf16Pairs},
                              Format{at::kBFloat16, Arithmetic::kBf16Tiles},
                              Format{at::kChar, Arithmetic::kBf16Tiles}};

Activations activations(const at::Tensor& x, float scale = 1, Arithmetic arithmetic = Arithmetic::kFp32) {
  return {.data = x.const_data_ptr<float>(),
          .rows = x.size(0),
          .stride = x.stride(0),
          .scale = scale,
          .arithmetic = arithmetic};
}

Result result(const at::Tensor& y, bool add = false) {
  return {.data = y.mutable_data_ptr<float>(), .stride = y.stride(0), .add = add};
}

// Returns a matrix filled with 7, one row and five columns larger, to detect writes outside the result.
at::Tensor framed(int64_t rows, int64_t columns) { return at::full({rows + 1, columns + 5}, 7.0f); }
at::Tensor inner(const at::Tensor& frame, int64_t rows, int64_t columns) {
  return frame.narrow(0, 0, rows).narrow(1, 0, columns);
}
void expect_frame_untouched(const at::Tensor& frame, int64_t rows, int64_t columns) {
  EXPECT_TRUE(frame.narrow(0, rows, 1).eq(7).all().item<bool>());
  EXPECT_TRUE(frame.narrow(1, columns, 5).eq(7).all().item<bool>());
}

// Checks that |y - exact| is at most `most` times the sum of the terms' sizes. The default is the rounding of float32.
void expect_close(const at::Tensor& y, const at::Tensor& exact, const at::Tensor& size, double most = 1e-6) {
  const auto error = ((y.to(at::kDouble) - exact).abs() / (size + 1e-30)).max().item<double>();
  EXPECT_LT(error, most);
}

struct Shape {
  int64_t rows, out, in;
};

// Returns the scratch memory of every instruction set that this processor has.
std::vector<GemmScratch> every_instruction_set() {
  std::vector<GemmScratch> all;
  for (const auto set : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (set > isa()) continue;
    all.emplace_back();
    all.back().instructions = set;
  }
  return all;
}

// Returns whether products of tiles use AMX on this processor. Otherwise loops emulate it.
bool tiles_are_real() {
  return gemm_kernels(isa(), Arithmetic::kBf16Tiles).enter !=
         gemm_kernels(Isa::kBaseline, Arithmetic::kBf16Tiles).enter;
}

// Returns the names of every_instruction_set() and of the instructions for bfloat16 that are not emulated.
std::vector<std::string> tried_instructions() {
  constexpr std::array kNames{"baseline", "avx2", "avx512"};
  std::vector<std::string> names;
  for (const auto& scratch : every_instruction_set())
    names.emplace_back(kNames[static_cast<size_t>(scratch.instructions)]);
  if (has_bfloat16_dots()) names.emplace_back("avx512_bf16");
  if (tiles_are_real()) names.emplace_back("amx");
  return names;
}

// If EVENKEEL_EXPECT_ISA names instructions, these tests fail on a machine that lacks them.
TEST(Gemm, NamesTheInstructionSetsThatItTries) {
  const auto names = tried_instructions();
  const auto tried = join(names), tiles = std::string(tiles_are_real() ? "real" : "emulated");
  RecordProperty("instruction_sets", tried);
  RecordProperty("amx_tiles", tiles);
  std::cout << "instruction sets: " << tried << "; AMX tiles: " << tiles << '\n';
  const char* expected = std::getenv("EVENKEEL_EXPECT_ISA");
  EXPECT_TRUE(!expected || std::find(names.begin(), names.end(), expected) != names.end())
      << "EVENKEEL_EXPECT_ISA is " << expected << ", this machine has " << tried;
}

void multiply(bool forward, const Activations& x, const StoredMatrix& w, const Result& y, GemmScratch& scratch) {
  forward ? gemm_nt(x, w, y, scratch) : gemm_nn(x, w, y, scratch);
}

// Checks both directions, with and without `add`, for one shape and format. With bfloat16 pairs and tiles the expected
// product uses x rounded to bfloat16. An int8 weight whose rows scale x is applied before that rounding.
void expect_products(const Shape& shape, const Format& format, GemmScratch& scratch) {
  SCOPED_TRACE(concat("rows ", shape.rows, " out ", shape.out, " in ", shape.in, " ", format.name(), " instructions ",
                      static_cast<int>(scratch.instructions)));
  const auto w = weight(format.dtype, shape.out, shape.in);
  for (const bool forward : {true, false}) {
    const int64_t depth = forward ? shape.in : shape.out, width = forward ? shape.out : shape.in;
    const auto x = at::randn({shape.rows, depth + 2}).narrow(1, 0, depth);
    const auto operand = forward ? w.exact_OI.t() : w.exact_OI;
    const bool scaled_first = !forward && format.dtype == at::kChar;
    const auto multiplied = format.rounds() && !scaled_first ? x.to(at::kBFloat16) : x;
    const auto product = at::mm(multiplied.to(at::kDouble) * 0.5, operand);
    const auto size = at::mm(x.to(at::kDouble).abs(), operand.abs()) + 7;
    auto frame = framed(shape.rows, width);
    const auto y = inner(frame, shape.rows, width);
    for (const bool add : {true, false}) {
      multiply(forward, activations(x, 0.5f, format.arithmetic), w.matrix, result(y, add), scratch);
      expect_close(y, add ? product + 7 : product, size, format.rounds() && scaled_first ? 0x1p-9 : 1e-6);
      expect_frame_untouched(frame, shape.rows, width);
    }
  }
}

TEST(Gemm, EqualsFloat64AtOddSizesInEveryFormatAndInstructionSet) {
  at::manual_seed(1);
  for (auto& scratch : every_instruction_set())
    for (const auto& format : kFormats) {
      for (const Shape& shape : {Shape{1, 1, 1},
                                 {1, 37, 70},
                                 {2, 16, 32},
                                 {3, 65, 258},
                                 {5, 40, 20},
                                 {33, 70, 129},
                                 {70, 20, 513},
                                 {48, 96, 160}})
        expect_products(shape, format, scratch);
      for (int64_t rows = 1; rows < 33; rows += 3) expect_products({rows, 35, 33}, format, scratch);
    }
}

// Sums in the order that gemm.h states for tiles: 32 terms at a time, even and odd ones; scaled rows in blocks of 256
// terms.
float tiles_in_order(const at::Tensor& x, const at::Tensor& column, const float* scale, float before) {
  const int64_t terms = column.size(0);
  float y = before, sum = 0;
  for (int64_t k = 0; k < terms; k += 32) {
    std::array<float, 2> sums{};
    for (int64_t i = k; i < std::min(k + 32, terms); ++i)
      sums[static_cast<size_t>(i % 2)] += x[i].item<float>() * column[i].item<float>();
    (scale ? sum : y) += sums[0] + sums[1];
    if (scale && (k % 256 == 224 || k + 32 >= terms)) y = std::fma(*scale, std::exchange(sum, 0.0f), y);
  }
  return y;
}

// Sums blocks of 128 terms, each from 0, with one fused multiply-add per term. With pairs, blocks have 256 terms and
// the later term of a pair is added first.
float in_order(const at::Tensor& x, const at::Tensor& column, const float* scales, float before,
               Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::kBf16Tiles) return tiles_in_order(x, column, scales, before);
  const bool pairs = arithmetic == Arithmetic::kBf16Pairs;
  const int64_t terms = column.size(0), block = pairs ? 256 : 128, step = pairs ? 2 : 1;
  const float scale = scales ? *scales : 1.0f;
  float y = before;
  for (int64_t k = 0; k < terms; k += block) {
    float sum = 0;
    for (int64_t i = k; i < std::min(k + block, terms); i += step)
      for (int64_t term = std::min(i + step, terms) - 1; term >= i; --term)
        sum = std::fma(x[term].item<float>(), column[term].item<float>(), sum);
    y = std::fma(scale, sum, y);
  }
  return y;
}

TEST(Gemm, SumsEveryElementInTheStatedOrder) {
  at::manual_seed(4);
  for (auto& scratch : every_instruction_set()) {
    if (scratch.instructions == Isa::kBaseline) continue;  // it has no fused multiply-add
    for (const auto& format : kFormats)
      for (const int64_t rows : {1, 5, 9, 17}) {
        const auto& [dtype, arithmetic] = format;
        const auto w = weight(dtype, 3, 277);
        const auto x = at::randn({rows, 277});
        auto y = at::full({rows, 3}, 0.25f);
        gemm_nt(activations(x, 1, arithmetic), w.matrix, result(y, true), scratch);
        const auto multiplied = format.rounds() ? x.to(at::kBFloat16).to(at::kFloat) : x;
        for (int64_t o = 0; o < 3; ++o)
          EXPECT_EQ(y[rows - 1][o].item<float>(),
                    in_order(multiplied[rows - 1], w.stored[o].narrow(0, 0, 277).to(at::kFloat),
                             dtype == at::kChar ? w.scales[o].const_data_ptr<float>() : nullptr, 0.25f, arithmetic));
      }
  }
}

TEST(Gemm, RowHasTheSameBitsAloneAndAmongOthers) {
  at::manual_seed(5);
  for (auto& scratch : every_instruction_set())
    for (const auto& format : kFormats)
      for (const bool forward : {true, false}) {
        const auto w = weight(format.dtype, 150, 140);
        const auto x = at::randn({70, forward ? 140 : 150});
        const int64_t width = forward ? 150 : 140;
        auto together = at::empty({70, width}), parts = at::empty({70, width});
        multiply(forward, activations(x, 1, format.arithmetic), w.matrix, result(together), scratch);
        for (int64_t row = 0, rows = 1; row < 70; row += rows++)
          multiply(forward, activations(x.narrow(0, row, std::min(rows, 70 - row)), 1, format.arithmetic), w.matrix,
                   result(parts.narrow(0, row, std::min(rows, 70 - row))), scratch);
        EXPECT_TRUE(at::equal(together, parts)) << format.name() << (forward ? " forward" : " backward");
      }
}

TEST(Gemm, ColumnHasTheSameBitsAloneAndAmongOthers) {
  at::manual_seed(12);
  for (auto& scratch : every_instruction_set())
    for (const auto& format : kFormats)
      for (const int64_t rows : {5, 20, 140}) {  // streamed, few, many rows
        const auto w = weight(format.dtype, 70, 150);
        const auto x = at::randn({rows, 150});
        auto together = at::empty({rows, 70}), parts = at::empty({rows, 70});
        multiply(true, activations(x, 1, format.arithmetic), w.matrix, result(together), scratch);
        for (int64_t column = 0, columns = 1; column < 70; column += columns, columns += 4) {
          auto some = w.matrix;
          some.data = w.stored[column].const_data_ptr();
          some.out = std::min(columns, 70 - column);
          if (some.scales) some.scales += column;
          multiply(true, activations(x, 1, format.arithmetic), some, result(parts.narrow(1, column, some.out)),
                   scratch);
        }
        EXPECT_TRUE(at::equal(together, parts)) << format.name() << " " << rows << " rows";
      }
}

TEST(Gemm, ThreadsDoNotChangeBits) {
  at::manual_seed(6);
  const int before = at::get_num_threads();
  GemmScratch scratch;
  for (const auto& [shape, arithmetic] : {std::pair{Shape{5, 1030, 700}, Arithmetic::kFp32},
                                          {Shape{5, 1030, 700}, Arithmetic::kBf16Pairs},
                                          {Shape{5, 1030, 704}, Arithmetic::kBf16Tiles},
                                          {Shape{40, 300, 515}, Arithmetic::kFp32},
                                          {Shape{40, 300, 515}, Arithmetic::kBf16Pairs},
                                          {Shape{40, 300, 515}, Arithmetic::kBf16Tiles},
                                          {Shape{1100, 70, 130}, Arithmetic::kFp32},
                                          {Shape{1100, 70, 130}, Arithmetic::kBf16Tiles}})
    for (const bool forward : {true, false}) {
      const auto w = weight(at::kBFloat16, shape.out, shape.in);
      const auto x = at::randn({shape.rows, forward ? shape.in : shape.out});
      std::vector<at::Tensor> by_threads;
      for (const int threads : {1, 2, 3, 16}) {
        at::set_num_threads(threads);
        by_threads.push_back(at::empty({shape.rows, forward ? shape.out : shape.in}));
        multiply(forward, activations(x, 1, arithmetic), w.matrix, result(by_threads.back()), scratch);
      }
      for (const auto& y : by_threads) EXPECT_TRUE(at::equal(by_threads[0], y));
    }
  at::set_num_threads(before);
}

// With few columns, the work tiles are bands of rows.
TEST(Gemm, ThreadsDoNotChangeBitsOfAGradientOfAFactor) {
  at::manual_seed(14);
  const int before = at::get_num_threads();
  GemmScratch scratch;
  for (const auto& [width, in] : {std::pair<int64_t, int64_t>{1040, 20}, {20, 1040}, {7, 3100}}) {
    const auto w = weight(at::kFloat, 130, in);
    const auto x = at::randn({130, width});
    std::vector<at::Tensor> by_threads;
    for (const int threads : {1, 2, 3, 16}) {
      at::set_num_threads(threads);
      by_threads.push_back(at::ones({width, in}));
      gemm_tn(activations(x), width, w.matrix, result(by_threads.back(), true), scratch);
    }
    for (const auto& y : by_threads) EXPECT_TRUE(at::equal(by_threads[0], y)) << width;
  }
  at::set_num_threads(before);
}

TEST(Gemm, SmallIntegersAreExact) {
  at::manual_seed(7);
  for (auto& scratch : every_instruction_set())
    for (const auto& [dtype, arithmetic] : kFormats)
      for (const int64_t rows : {3, 21})
        for (const bool forward : {true, false}) {
          const auto stored = at::randint(-9, 10, {45, 150}, at::kLong).to(dtype);
          const auto ones = at::ones({45});
          const StoredMatrix w{.data = stored.const_data_ptr(),
                               .dtype = dtype,
                               .out = 45,
                               .in = 150,
                               .stride = 150,
                               .scales = ones.const_data_ptr<float>()};
          const auto x = at::randint(-9, 10, {rows, forward ? 150 : 45}, at::kFloat);
          auto y = at::empty({rows, forward ? 45 : 150});
          multiply(forward, activations(x, 1, arithmetic), w, result(y), scratch);
          const auto wide = stored.to(at::kFloat);
          EXPECT_TRUE(at::equal(y, at::mm(x, forward ? wide.t() : wide)));
        }
}

TEST(Gemm, NonFiniteNumbersAffectOnlyTheirRowAndColumn) {
  at::manual_seed(8);
  const float infinite = std::numeric_limits<float>::infinity();
  for (auto& scratch : every_instruction_set())
    for (const auto& [rows, arithmetic] : {std::pair{2, Arithmetic::kFp32},
                                           {19, Arithmetic::kFp32},
                                           {2, Arithmetic::kBf16Pairs},
                                           {19, Arithmetic::kBf16Pairs},
                                           {2, Arithmetic::kBf16Tiles},
                                           {19, Arithmetic::kBf16Tiles}}) {
      auto w = weight(at::kBFloat16, 37, 45);
      w.stored[5][44].fill_(std::numeric_limits<float>::quiet_NaN());
      auto x = at::randn({rows, 45});
      x[1][0].fill_(infinite);
      auto y = at::zeros({rows, 37});
      gemm_nt(activations(x, 1, arithmetic), w.matrix, result(y), scratch);
      auto expected = at::zeros({rows, 37}, at::kBool);
      expected.narrow(0, 1, 1).fill_(true);
      expected.narrow(1, 5, 1).fill_(true);
      EXPECT_TRUE(at::equal(at::isfinite(y).logical_not(), expected));
    }
}

TEST(Gemm, WithoutTermsTheResultIsZeroOrUnchanged) {
  GemmScratch scratch;
  const auto w = weight(at::kFloat, 3, 4);
  auto matrix = w.matrix;
  matrix.in = 0;
  const auto x = at::randn({2, 4});
  auto y = at::full({2, 3}, 5.0f);
  gemm_nt(activations(x), matrix, result(y, true), scratch);
  EXPECT_TRUE(y.eq(5).all().item<bool>());
  gemm_nt(activations(x), matrix, result(y, false), scratch);
  EXPECT_TRUE(y.eq(0).all().item<bool>());
}

TEST(Gemm, RejectsOtherTypesAndUnequalWidths) {
  GemmScratch scratch;
  const auto wide = at::zeros({3, 4}, at::kDouble), x = at::zeros({2, 4});
  auto y = at::zeros({2, 3});
  const StoredMatrix w{.data = wide.const_data_ptr(), .dtype = at::kDouble, .out = 3, .in = 4, .stride = 4};
  EXPECT_THROW(gemm_nt(activations(x), w, result(y), scratch), Error);
  EXPECT_THROW(gemm_nt(activations(x, 1, Arithmetic::kBf16Pairs), weight(at::kHalf, 3, 4).matrix, result(y), scratch),
               Error);
  EXPECT_THROW(gemm_nt(activations(x, 1, Arithmetic::kBf16Tiles), weight(at::kFloat, 3, 4).matrix, result(y), scratch),
               Error);
  const auto four = weight(at::kFloat, 3, 4), five = weight(at::kFloat, 3, 5);
  const std::vector<GroupedOperand> uneven{{four.matrix, result(y)}, {five.matrix, result(y)}};
  EXPECT_THROW(gemm_nt(activations(x), uneven, scratch), Error);
}

TEST(Gemm, TnIsTheGradientOfAFactor) {
  at::manual_seed(2);
  GemmScratch scratch;
  for (const auto& [rows, width, in] : {std::array<int64_t, 3>{1, 5, 37}, {31, 20, 70}, {300, 3, 33}, {7, 45, 20}}) {
    const auto w = weight(at::kFloat, rows, in);
    const auto x = at::randn({rows, width});
    auto y = at::full({width, in}, 2.0f);
    gemm_tn(activations(x, 2), width, w.matrix, result(y, true), scratch);
    const auto x_t = x.to(at::kDouble).t();
    expect_close(y, at::mm(x_t * 2, w.exact_OI) + 2, at::mm(x_t.abs() * 2, w.exact_OI.abs()) + 2);
  }
}

TEST(Gemm, GroupedWeightsEachGetTheirOwnProduct) {
  at::manual_seed(3);
  GemmScratch scratch;
  const auto gate = weight(at::kBFloat16, 45, 66), up = weight(at::kChar, 33, 66), a = weight(at::kFloat, 20, 66);
  const auto x = at::randn({9, 66});
  std::vector<at::Tensor> alone, together;
  std::vector<GroupedOperand> products;
  for (const auto* w : {&gate, &up, &a}) {
    alone.push_back(at::ones({9, w->matrix.out}));
    together.push_back(at::ones({9, w->matrix.out}));
    const bool add = w == &up;
    gemm_nt(activations(x), w->matrix, result(alone.back(), add), scratch);
    products.push_back({w->matrix, result(together.back(), add)});
  }
  gemm_nt(activations(x), products, scratch);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(at::equal(alone[i], together[i]));
}

TEST(Gemm, EpiloguesGiveTheBitsOfSeparateProducts) {
  at::manual_seed(9);
  for (auto& scratch : every_instruction_set())
    for (const auto& format : kFormats)
      for (const bool forward : {true, false})
        for (const int64_t rows : {3, 19, 50}) {
          const auto w = weight(format.dtype, 300, 290);
          const int64_t columns = forward ? 300 : 290;
          const auto x = at::randn({rows, forward ? 290 : 300}), few = at::randn({rows, 20}),
                     many = at::randn({rows, 170});
          const auto b = forward ? weight(at::kFloat, columns, 20) : weight(at::kFloat, 20, columns),
                     change = forward ? weight(at::kBFloat16, columns, 170) : weight(at::kBFloat16, 170, columns);
          auto alone = at::ones({rows, columns}), together = at::ones({rows, columns});
          const GroupedOperand product{w.matrix,
                                       result(together, !forward),
                                       {{activations(few, 0.7f), b.matrix}, {activations(many), change.matrix}}};
          multiply(forward, activations(x, 1, format.arithmetic), w.matrix, result(alone, !forward), scratch);
          multiply(forward, activations(few, 0.7f), b.matrix, result(alone, true), scratch);
          multiply(forward, activations(many), change.matrix, result(alone, true), scratch);
          forward ? gemm_nt(activations(x, 1, format.arithmetic), std::span(&product, 1), scratch)
                  : gemm_nn(activations(x, 1, format.arithmetic), product, scratch);
          EXPECT_TRUE(at::equal(alone, together)) << format.name() << (forward ? " forward " : " backward ") << rows;
        }
}

// Checks rows of y = before + 0.5 x w + xb b with the weights as they are, or transposed if `forward`.
void expect_product_and_epilogue(const at::Tensor& y, double before, bool forward, bool rounds, const at::Tensor& x,
                                 const Weight& w, const at::Tensor& xb, const Weight& b) {
  const auto operand = [&](const Weight& of) { return forward ? of.exact_OI.t() : of.exact_OI; };
  const bool scaled_first = !forward && w.scales.defined();
  const auto multiplied = rounds && !scaled_first ? x.to(at::kBFloat16) : x;
  const auto product = at::mm(multiplied.to(at::kDouble) * 0.5, operand(w));
  const auto size = at::mm(x.to(at::kDouble).abs(), operand(w).abs()) + 7;
  const auto exact = product + at::mm(xb.to(at::kDouble), operand(b)) + before;
  expect_close(y, exact, size, rounds && scaled_first ? 0x1p-9 : 1e-6);
}

// x is packed for one range of terms after the other, and the epilogue is added after the last one.
TEST(Gemm, SeveralRangesOfTermsAreNearFloat64AndKeepTheirBitsWithAnyThreads) {
  at::manual_seed(15);
  constexpr int64_t kRows = 2100, kColumns = 40, kRank = 20;
  const int threads_before = at::get_num_threads();
  GemmScratch scratch;
  for (const auto arithmetic : {Arithmetic::kFp32, Arithmetic::kBf16Pairs, Arithmetic::kBf16Tiles}) {
    const bool rounds = arithmetic != Arithmetic::kFp32;
    const int64_t terms = rounds ? 4100 : 2100;
    ASSERT_GT(kRows * gemm_kernels(scratch.instructions, arithmetic).steps(terms), kMaxPackedElements);
    const auto x = at::randn({kRows, terms}), xb = at::randn({kRows, kRank});
    const auto scaled = activations(x, 0.5f, arithmetic);
    for (const bool forward : {true, false}) {
      const auto w = forward ? weight(at::kChar, kColumns, terms) : weight(at::kChar, terms, kColumns),
                 b = forward ? weight(at::kFloat, kColumns, kRank) : weight(at::kFloat, kRank, kColumns);
      for (const bool add : {true, false}) {
        SCOPED_TRACE(concat(static_cast<int>(arithmetic), forward ? " forward" : " backward", add ? ", added" : ""));
        std::vector<at::Tensor> by_threads;
        for (const int threads : {1, 3}) {
          at::set_num_threads(threads);
          by_threads.push_back(at::full({kRows, kColumns}, 7.0f));
          const GroupedOperand product{w.matrix, result(by_threads.back(), add), {{activations(xb), b.matrix}}};
          forward ? gemm_nt(scaled, std::span(&product, 1), scratch) : gemm_nn(scaled, product, scratch);
        }
        EXPECT_TRUE(at::equal(by_threads[0], by_threads[1]));
        const auto some = [&](const at::Tensor& rows) { return rows.slice(0, 5, kRows, 97); };
        expect_product_and_epilogue(some(by_threads[0]), add ? 7 : 0, forward, rounds, some(x), w, some(xb), b);
      }
    }
  }
  at::set_num_threads(threads_before);
}

// A product that is added to zeros is always packed. A product that overwrites is read in place where that is faster
// (unpacked_gemm.h). Both must have the same bits.
void expect_the_bits_of_packing(bool forward, const Activations& x, const Weight& w,
                                const std::vector<LowRankEpilogue>& epilogues, GemmScratch& scratch) {
  const int64_t columns = forward ? w.matrix.out : w.matrix.in;
  const auto packed = at::zeros({x.rows, columns});
  auto frame = framed(x.rows, columns);
  const auto unpacked = inner(frame, x.rows, columns);
  for (const auto& y : {result(packed, true), result(unpacked)}) {
    const GroupedOperand product{w.matrix, y, epilogues};
    forward ? gemm_nt(x, std::span(&product, 1), scratch) : gemm_nn(x, product, scratch);
  }
  EXPECT_TRUE(at::equal(packed, unpacked)) << (forward ? "forward " : "backward ") << x.rows << " rows";
  expect_frame_untouched(frame, x.rows, columns);
}

TEST(Gemm, AnUnpackedWeightGivesTheBitsOfAPackedOne) {
  at::manual_seed(10);
  const int before = at::get_num_threads();
  for (auto& scratch : every_instruction_set())
    for (const auto& format : {Format{at::kFloat}, Format{at::kBFloat16}, Format{at::kBFloat16, Arithmetic::kBf16Pairs},
                               Format{at::kBFloat16, Arithmetic::kBf16Tiles}})
      for (const int64_t rows : {1, 3, 5, 8, 9, 16, 17, 20, 21, 24, 25, 33, 36, 40, 41, 64, 100, 128, 129})
        for (const int threads : {1, 3}) {
          at::set_num_threads(threads);
          const int64_t terms = format.arithmetic == Arithmetic::kBf16Tiles ? 608 : 602;
          const auto w = weight(format.dtype, 270, terms, 4), b = weight(at::kFloat, 270, 20);
          const auto x = at::randn({rows, terms}), xa = at::randn({rows, 20});
          const std::vector<LowRankEpilogue> epilogues{{activations(xa, 0.7f), b.matrix}};
          expect_the_bits_of_packing(true, activations(x, 0.3f, format.arithmetic), w, {}, scratch);
          expect_the_bits_of_packing(true, activations(x, 0.3f, format.arithmetic), w, epilogues, scratch);
        }
  at::set_num_threads(before);
}

// The rows of x are taken in bands, the last of which is shorter. AVX-512 without dot products of bfloat16 packs the
// weight, because its vectors for tiles are shorter than those for float32.
TEST(Gemm, AnUnpackedWeightOfSeveralBandsGivesTheBitsOfAPackedOne) {
  at::manual_seed(16);
  const int threads_before = at::get_num_threads();
  for (auto& scratch : every_instruction_set())
    for (const int64_t rows : {kBandRows + 1, 2 * kBandRows + 18})
      for (const int threads : {1, 3}) {
        at::set_num_threads(threads);
        const auto w = weight(at::kBFloat16, 110, 96, 4), b = weight(at::kFloat, 110, 20);
        const auto wide = at::randn({rows, 96}), xa = at::randn({rows, 20});
        const auto x = activations(wide, 0.3f, Arithmetic::kBf16Tiles);
        auto y = at::empty({rows, 110});
        const GroupedOperand product{w.matrix, result(y), {{activations(xa, 0.7f), b.matrix}}};
        EXPECT_EQ(gemm_nt_unpacked(x, std::span(&product, 1), scratch),
                  gemm_kernels(scratch.instructions, Arithmetic::kBf16Tiles).lanes ==
                      gemm_kernels(scratch.instructions, Arithmetic::kFp32).lanes);
        expect_the_bits_of_packing(true, x, w, {}, scratch);
        expect_the_bits_of_packing(true, x, w, product.epilogues, scratch);
      }
  at::set_num_threads(threads_before);
}

TEST(Gemm, UnpackedActivationsGiveTheBitsOfPackedOnes) {
  at::manual_seed(11);
  const int before = at::get_num_threads();
  for (auto& scratch : every_instruction_set())
    for (const auto dtype : {at::kFloat, at::kBFloat16})
      for (const int64_t columns : {1, 8, 9, 17, 20, 24, 25, 45, 64, 65})
        for (const int64_t rows : {9, 23, 130})
          for (const int threads : {1, 3}) {
            at::set_num_threads(threads);
            const auto x = at::randn({rows, 900}).narrow(1, 0, 897);
            for (const float scale : {1.0f, 0.7f}) {
              expect_the_bits_of_packing(true, activations(x, scale), weight(dtype, columns, 897), {}, scratch);
              expect_the_bits_of_packing(false, activations(x, scale), weight(dtype, 897, columns), {}, scratch);
            }
          }
  at::set_num_threads(before);
}

TEST(Gemm, AllInstructionSetsGiveTheSameBits) {
  at::manual_seed(13);
  for (const auto& format : kFormats)
    for (const auto& shape : {Shape{2, 64, 96}, {20, 64, 96}, {47, 96, 352}, {130, 33, 300}})
      for (const bool forward : {true, false}) {
        const auto w = weight(format.dtype, shape.out, shape.in, 2);
        const auto x = at::randn({shape.rows, forward ? shape.in : shape.out});
        std::vector<at::Tensor> results;
        for (auto& scratch : every_instruction_set()) {
          const bool rounds_twice =
              scratch.instructions == Isa::kBaseline && format.arithmetic != Arithmetic::kBf16Tiles;
          if (rounds_twice) continue;
          results.push_back(at::empty({shape.rows, forward ? shape.out : shape.in}));
          multiply(forward, activations(x, 1, format.arithmetic), w.matrix, result(results.back()), scratch);
          EXPECT_TRUE(at::equal(results.front(), results.back())) << format.name() << " " << shape.rows << " rows";
        }
      }
}

TEST(Gemm, RejectsEpiloguesOfOtherShapes) {
  GemmScratch scratch;
  const auto w = weight(at::kFloat, 30, 40), narrow = weight(at::kFloat, 29, 5);
  const auto x = at::randn({9, 40}), xa = at::randn({9, 5});
  auto y = at::zeros({9, 30});
  const GroupedOperand product{w.matrix, result(y), {{activations(xa), narrow.matrix}}};
  EXPECT_THROW(gemm_nt(activations(x), std::span(&product, 1), scratch), Error);
}

}  // namespace
}  // namespace evenkeel::nn::kernels
