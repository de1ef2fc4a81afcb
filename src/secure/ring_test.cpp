#include "secure/ring.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/plain/error.h"
#include "crypto/testing.h"

namespace evenkeel::secure {
namespace {

using evenkeel::testing::secret_of;

at::Tensor encoded(const at::Tensor& values, double weight, const RingFormat& format) {
  const auto out = format.zeros(values.numel());
  encode({values, weight}, format, {}, out);
  return out;
}

TEST(Ring, TheScaleIsTheLargestPowerOfTwoThatCannotOverflow) {
  // (2^31 - 1 - 50) / 0.125 is just below 2^34; (2^15 - 1 - 50) / 0.125 just below 2^18.
  EXPECT_EQ(RingFormat::of(32, 0.125, 50).exponent, 33);
  EXPECT_EQ(RingFormat::of(16, 0.125, 50).exponent, 17);
  EXPECT_EQ(RingFormat::of(64, 0.125, 50).exponent, 65);
  EXPECT_EQ(RingFormat::of(32, 0.124, 50).exponent, 34);
}

TEST(Ring, FormatsThatCannotBeAreRefused) {
  EXPECT_THROW(RingFormat::of(24, 0.125, 3), Error);
  EXPECT_THROW(RingFormat::of(32, 0, 3), Error);
  EXPECT_THROW(RingFormat::of(32, std::nan(""), 3), Error);
  EXPECT_THROW(RingFormat::of(32, 0.125, 101), Error);
  EXPECT_THROW(RingFormat::of(32, 0.125, 0), Error);
}

TEST(Ring, ValuesAreRoundedToNearestTiesToEven) {
  const RingFormat format{.bits = 32, .exponent = 1, .range = 100};
  const auto values = at::tensor({0.25, 0.75, 1.25, -0.25, -0.75, 3.1}, at::kDouble);
  EXPECT_TRUE(at::equal(encoded(values, 1, format), at::tensor({0, 2, 2, 0, -2, 6}, at::kInt)));
}

TEST(Ring, AllMembersAtTheEndsOfTheRangeStayExact) {
  for (const int64_t bits : {16, 32, 64})
    for (const double end : {-0.25, 0.25}) {
      const auto format = RingFormat::of(bits, 0.25, 100);
      const auto total = format.zeros(7);
      for (int i = 0; i < 100; ++i) add_to(total, encoded(at::full({7}, end, at::kFloat), 1.0 / 100, format));
      const auto mean = decode(total, format, 1);
      EXPECT_NEAR(mean[6].item<double>(), end, bits == 16 ? 2e-3 : 1e-7) << bits;
    }
}

TEST(Ring, WeightsOfTwoToThe31RowsDoNotOverflow) {
  const auto format = RingFormat::of(32, 0.25, 3);
  const double rows = 0x1p31, all = 3 * rows;
  const auto total = format.zeros(3);
  for (int i = 0; i < 3; ++i) add_to(total, encoded(at::tensor({0.25, -0.25, 0.1}, at::kDouble), rows / all, format));
  const auto mean = decode(total, format, 1);
  EXPECT_TRUE(at::allclose(mean, at::tensor({0.25F, -0.25F, 0.1F}), 0, 1e-8)) << mean;
}

TEST(Ring, ValuesBeyondTheRangeAreClampedAndCounted) {
  const auto format = RingFormat::of(32, 0.5, 4);
  const auto out = format.zeros(4);
  EXPECT_EQ(encode({at::tensor({0.5, 0.5001, -7.0, 0.25}, at::kDouble), 1}, format, {}, out), 2);
  EXPECT_TRUE(at::allclose(decode(out, format, 1), at::tensor({0.5F, 0.5F, -0.5F, 0.25F}), 0, 1e-8));
}

TEST(Ring, ValuesThatAreNotFiniteAreRefused) {
  const auto format = RingFormat::of(32, 0.5, 4);
  for (const double bad : {std::nan(""), HUGE_VAL})
    EXPECT_THROW(encode({at::tensor({0.1, bad}, at::kDouble), 1}, format, {}, format.zeros(2)), Error);
  EXPECT_THROW(encode({at::zeros({3}), 1}, format, {}, format.zeros(2)), Error);
}

TEST(Ring, EachMatrixOfAStackHasItsWeight) {
  const RingFormat format{.bits = 64, .exponent = 8, .range = 1};
  const auto out = format.zeros(6);
  encode({.values = at::ones({3, 2}), .weight = 0.5, .weights_E = at::tensor({0.0, 0.5, 1.0}, at::kDouble)}, format, {},
         out);
  EXPECT_TRUE(at::equal(out, at::tensor({0, 0, 64, 64, 128, 128}, at::kLong)));
}

TEST(Ring, RoundingByAKeyHasNoBiasAndDoesNotDependOnTheParts) {
  const RingFormat format{.bits = 16, .exponent = 0, .range = 4};
  const auto key = secret_of("rounding");
  const auto values = at::full({100'000}, 0.3, at::kDouble);
  const auto whole = format.zeros(100'000), parts = format.zeros(100'000);
  encode({values, 1}, format, StochasticRounding{key, 0}, whole);
  for (const auto& [begin, end] : {std::pair{0, 7}, std::pair{7, 40'001}, std::pair{40'001, 100'000}})
    encode({values.slice(0, begin, end), 1}, format, StochasticRounding{key, begin}, parts.slice(0, begin, end));
  EXPECT_TRUE(at::equal(whole, parts));
  EXPECT_NEAR(whole.to(at::kDouble).mean().item<double>(), 0.3, 5 * std::sqrt(0.21 / 1e5));
  EXPECT_GE(whole.min().item<int64_t>(), 0);
  EXPECT_LE(whole.max().item<int64_t>(), 1);
}

TEST(Ring, SumsWrapAroundAndSurviveAWiderSum) {
  for (const auto type : {at::kShort, at::kInt, at::kLong}) {
    const auto high = at::full({3},
                               type == at::kShort ? int64_t{32767}
                               : type == at::kInt ? int64_t{2147483647}
                                                  : INT64_MAX,
                               at::kLong)
                          .to(type);
    const auto total = high.clone();
    add_to(total, at::ones({3}, type));
    EXPECT_LT(total[0].item<int64_t>(), 0);
    auto wide = widened(high);
    wide = at::empty({3}, at::kLong).copy_(wide);
    add_to(wide, at::ones({3}, at::kLong));
    EXPECT_TRUE(at::equal(narrowed(wide, type), total));
  }
}

TEST(Ring, TheSumOfSurvivorsIsDividedByTheirWeights) {
  const auto format = RingFormat::of(32, 0.5, 4);
  const auto total = format.zeros(1);
  add_to(total, encoded(at::tensor({0.1}, at::kDouble), 0.25, format));
  add_to(total, encoded(at::tensor({0.3}, at::kDouble), 0.5, format));
  EXPECT_NEAR(decode(total, format, 0.75)[0].item<double>(), (0.1 * 0.25 + 0.3 * 0.5) / 0.75, 1e-7);
}

}  // namespace
}  // namespace evenkeel::secure
