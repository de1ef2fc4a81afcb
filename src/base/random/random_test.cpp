#include "base/random/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/plain/error.h"
#include "base/random/box_muller.h"

namespace evenkeel {
namespace {

using Block = std::array<uint32_t, 4>;

struct Moments {
  double mean = 0, variance = 0;
};

template <typename Draw>
Moments moments(int64_t count, Draw draw) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double x = draw();
    sum += x;
    squares += x * x;
  }
  const double mean = sum / count;
  return {mean, squares / count - mean * mean};
}

TEST(Philox, EqualsThePublishedTestVectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, SameNameGivesTheSameNumbers) {
  RandomStream first(42, "batches", 3, 5), second(42, "batches", 3, 5);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(first.next_u64(), second.next_u64());
}

TEST(RandomStream, EveryPartOfTheNameChangesTheNumbers) {
  const std::vector<uint64_t> draws = {
      RandomStream(42, "batches", 3, 5).next_u64(), RandomStream(43, "batches", 3, 5).next_u64(),
      RandomStream(42, "batch", 3, 5).next_u64(),   RandomStream(42, "batches", 5, 3).next_u64(),
      RandomStream(42, "batches", 3, 6).next_u64(), RandomStream(42, "batches", 3).next_u64()};
  auto sorted = draws;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
}

TEST(RandomStream, UniformStaysInRangeWithTheRightMoments) {
  RandomStream stream(1, "uniform");
  const auto seen = moments(200'000, [&] {
    const double x = stream.uniform();
    EXPECT_TRUE(x >= 0 && x < 1);
    return x;
  });
  EXPECT_NEAR(seen.mean, 0.5, 0.003);
  EXPECT_NEAR(seen.variance, 1.0 / 12, 0.001);
}

TEST(RandomStream, BelowIsUnbiased) {
  RandomStream stream(2, "below");
  std::array<int, 7> counts{};
  constexpr int kDraws = 70'000;
  for (int i = 0; i < kDraws; ++i) ++counts.at(stream.below(7));
  double chi_square = 0;
  for (const int count : counts) chi_square += std::pow(count - kDraws / 7.0, 2) / (kDraws / 7.0);
  EXPECT_LT(chi_square, 22.5);  // 99.9 % quantile of 6 degrees of freedom
}

TEST(RandomStream, BelowIsUnbiasedWhenTwoToThe64IsFarFromAMultiple) {
  RandomStream stream(3, "below");
  const uint64_t n = (uint64_t{1} << 63) + (uint64_t{1} << 62);  // a plain modulus would favour the lower third 2 : 1
  int lower_third = 0;
  for (int i = 0; i < 30'000; ++i) lower_third += stream.below(n) < n / 3 ? 1 : 0;
  EXPECT_NEAR(lower_third, 10'000, 330);
  EXPECT_EQ(stream.below(1), 0u);
  EXPECT_THROW(stream.below(0), Error);
}

TEST(RandomStream, NormalHasMeanZeroAndVarianceOne) {
  RandomStream stream(4, "normal");
  const auto seen = moments(200'000, [&] { return stream.normal(); });
  EXPECT_NEAR(seen.mean, 0, 0.01);
  EXPECT_NEAR(seen.variance, 1, 0.015);
}

TEST(RandomStream, GammaHasMeanAndVarianceAlpha) {
  for (const double alpha : {0.1, 0.5, 1.0, 2.5, 30.0}) {
    RandomStream stream(5, "gamma");
    const auto seen = moments(100'000, [&] { return stream.gamma(alpha); });
    EXPECT_NEAR(seen.mean, alpha, 6 * std::sqrt(alpha / 100'000)) << alpha;
    EXPECT_NEAR(seen.variance / alpha, 1, 0.1) << alpha;
  }
}

TEST(RandomStream, DirichletSharesSumToOneWithTheRightMoments) {
  for (const double alpha : {0.1, 1.0, 10.0}) {
    RandomStream stream(6, "dirichlet");
    const auto seen = moments(40'000, [&] {
      const auto shares = stream.dirichlet(alpha, 5);
      EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
      return shares[1];
    });
    EXPECT_NEAR(seen.mean, 0.2, 0.01);
    EXPECT_NEAR(seen.variance, 0.2 * 0.8 / (5 * alpha + 1), 0.004);
  }
}

TEST(RandomStream, DirichletStaysFiniteForVanishingAlpha) {
  RandomStream stream(7, "dirichlet");
  for (const double alpha : {1e-3, 1e-10, 1e-100, 1e-307}) {
    const auto shares = stream.dirichlet(alpha, 9);
    for (const double share : shares) EXPECT_TRUE(share >= 0 && share <= 1) << alpha;
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
  }
  EXPECT_THROW(stream.dirichlet(0, 3), Error);
}

TEST(RandomStream, ChoosesByWeightAndNeverAZeroWeight) {
  RandomStream stream(8, "choose");
  const std::array<double, 4> weights = {0, 1, 3, 0};
  std::array<int, 4> counts{};
  for (int i = 0; i < 20'000; ++i) ++counts.at(stream.choose(weights));
  EXPECT_EQ(counts[0] + counts[3], 0);
  EXPECT_NEAR(counts[2], 15'000, 300);
  EXPECT_THROW(stream.choose(std::array<double, 2>{0, 0}), Error);
}

TEST(RandomStream, PermutationContainsEveryIndexOnce) {
  RandomStream stream(9, "permutation");
  auto order = stream.permutation(101);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 101; ++i) EXPECT_EQ(order[i], i);
  EXPECT_TRUE(stream.permutation(0).empty());
}

TEST(RandomStream, FillsStayInRangeWithTheRightSpread) {
  RandomStream stream(10, "fill");
  std::vector<float> values(100'001);
  stream.fill_uniform(values, -0.25, 0.25);
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -0.25f);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 0.25f);
  size_t next = 0;
  EXPECT_NEAR(moments(100'001, [&] { return values[next++]; }).variance, 0.25 / 12, 3e-4);
  stream.fill_normal(values, 0.02);
  next = 0;
  const auto seen = moments(100'001, [&] { return values[next++] / 0.02; });
  EXPECT_NEAR(seen.mean, 0, 0.015);
  EXPECT_NEAR(seen.variance, 1, 0.03);
}

TEST(RandomStream, SkippingEqualsDrawing) {
  for (const int before : {0, 1, 3}) {
    for (const uint64_t words : {0u, 1u, 2u, 3u, 4u, 5u, 8u, 1001u}) {
      RandomStream drawn(3, "skip"), skipped(3, "skip");
      std::vector<float> seen(static_cast<size_t>(before) + words), some(static_cast<size_t>(before));
      drawn.fill_uniform(seen, 0, 1);
      skipped.fill_uniform(some, 0, 1);
      skipped.skip(words);
      EXPECT_EQ(drawn.next_u64(), skipped.next_u64()) << before << " and " << words;
    }
  }
}

TEST(RandomStream, DrawingManyEqualsDrawingOneByOne) {
  for (const int before : {0, 1, 3}) {
    RandomStream many(3, "many"), single(3, "many");
    many.skip(before), single.skip(before);
    std::vector<float> seen(1200);
    many.fill_normal(seen, 1.0);
    for (size_t i = 0; i < seen.size(); i += 2) {
      const uint64_t words = single.next_u64();
      const double radius = std::sqrt(-2.0 * std::log((static_cast<uint32_t>(words) + 0.5) * 0x1p-32));
      EXPECT_EQ(seen[i], static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * 0x1p-32 * (words >> 32)))) << i;
    }
    EXPECT_EQ(many.next_u64(), single.next_u64());
  }
}

TEST(RandomStream, BlocksOfNormalsDoNotDependOnHowTheyAreSplit) {
  std::vector<float> together(1001), apart(1001);
  RandomStream(5, "normals").fill_normal(together, 0.5);
  for (size_t begin = 0; begin < apart.size(); begin += 128) {
    RandomStream stream(5, "normals");
    stream.skip(begin);
    stream.fill_normal(std::span(apart).subspan(begin, std::min<size_t>(128, apart.size() - begin)), 0.5);
  }
  EXPECT_EQ(together, apart);
}

TEST(BoxMuller, EqualsTheCLibraryToTheLastBitOfAFloat) {
  constexpr uint32_t kTurn = uint32_t{1} << 30;
  std::vector<uint32_t> words = {0, 0,         ~0u, ~0u,       1, kTurn,     3, 3 * kTurn,
                                 7, 2 * kTurn, ~0u, kTurn / 2, 1, kTurn - 1, 1, kTurn + 1};
  RandomStream stream(11, "words");
  while (words.size() < 2 * kPairsAtOnce) words.push_back(static_cast<uint32_t>(stream.next_u64()));
  std::vector<float> ours(words.size());
  box_muller(words.data(), kPairsAtOnce, 0.02, ours.data());
  for (size_t i = 0; i < words.size(); i += 2) {
    const double radius = 0.02 * std::sqrt(-2.0 * std::log((words[i] + 0.5) * 0x1p-32));
    const double angle = 2.0 * std::numbers::pi * 0x1p-32 * words[i + 1];
    EXPECT_EQ(ours[i], static_cast<float>(radius * std::cos(angle))) << words[i] << ' ' << words[i + 1];
    EXPECT_EQ(ours[i + 1], static_cast<float>(radius * std::sin(angle))) << words[i] << ' ' << words[i + 1];
  }
}

}  // namespace
}  // namespace evenkeel
