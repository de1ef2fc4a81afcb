#include "lora/algebra.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/plain/error.h"
#include "lora/payload.h"

namespace evenkeel::lora {
namespace {

constexpr int64_t kExperts = 3, kIn = 7, kOut = 5;

LoraFactors factors(int64_t rank, uint64_t seed, double scaling = 1.0, int64_t experts = 0) {
  at::manual_seed(seed);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  if (experts == 0)
    return {.a = at::randn({rank, kIn}, options), .b = at::randn({kOut, rank}, options), .scaling = scaling};
  return {.a = at::randn({experts, rank, kIn}, options),
          .b = at::randn({experts, kOut, rank}, options),
          .scaling = scaling};
}

double difference(const at::Tensor& x, const at::Tensor& y) { return (x - y).abs().max().item<double>(); }

at::Tensor product(const ProductSvd& svd) { return at::matmul(svd.u * svd.s.unsqueeze(-2), svd.vt); }

/// Returns the product of the `rank` largest singular triplets of a matrix.
at::Tensor cut_to(const at::Tensor& dense, int64_t rank) {
  const auto [u, s, vt] = at::linalg_svd(dense, false);
  return at::mm(u.narrow(1, 0, rank) * s.narrow(0, 0, rank), vt.narrow(0, 0, rank));
}

TEST(Algebra, StackingGivesTheWeightedSumOfProducts) {
  for (const int64_t experts : {int64_t{0}, kExperts}) {
    const std::array parts{factors(2, 1, 2.0, experts), factors(3, 2, 0.5, experts)};
    constexpr std::array kWeights{0.3, 0.7};
    const auto stacked = stack(parts, kWeights);
    EXPECT_EQ(stacked.rank(), 5);
    EXPECT_EQ(stacked.scaling, 1.0);
    EXPECT_LT(difference(delta_weight(stacked), 0.3 * delta_weight(parts[0]) + 0.7 * delta_weight(parts[1])), 1e-12);
  }
}

TEST(Algebra, AStackHasTheWidestTypeOfItsParts) {
  const auto wide = factors(2, 1), narrow = rounded_for_transport(factors(3, 2, 0.5), TransportDtype::kBFloat16);
  constexpr std::array kWeights{1.0, 2.0};
  const auto stacked = stack(std::array{narrow, wide}, kWeights);
  EXPECT_EQ(stacked.a.scalar_type(), at::kDouble);
  EXPECT_TRUE(stacked.a.narrow(0, 0, 3).equal((narrow.a * 0.5).to(at::kDouble)));
  EXPECT_TRUE(stacked.b.narrow(1, 3, 2).equal(wide.b));
  EXPECT_EQ(stack(std::array{narrow, narrow}, kWeights).b.scalar_type(), at::kBFloat16);
}

TEST(Algebra, WeightsScaleAAndCoresAreMultipliedIntoB) {
  auto part = factors(2, 1, 0.5, kExperts);
  EXPECT_TRUE(weighted(part, 2).a.is_same(part.a)) << "nothing changes";
  part.core = at::randn({kExperts, 2, 2}, part.a.options());
  const auto one = weighted(part, 0.3);
  EXPECT_FALSE(one.core.defined());
  EXPECT_EQ(one.scaling, 1.0);
  EXPECT_TRUE(one.a.equal(part.a * 0.15));
  EXPECT_LT(difference(delta_weight(one), 0.3 * delta_weight(part)), 1e-12);
}

TEST(Algebra, SideBySideRequestsEachPartOnceAndChecksItsRank) {
  const std::array parts{factors(2, 1), factors(3, 2), factors(0, 3)};
  std::vector<size_t> asked;
  const auto all = side_by_side(std::array<int64_t, 3>{2, 3, 0}, [&](size_t i) {
    asked.push_back(i);
    return parts[i];
  });
  EXPECT_EQ(asked, (std::vector<size_t>{0, 1, 2}));
  EXPECT_LT(difference(delta_weight(all), delta_weight(parts[0]) + delta_weight(parts[1])), 1e-12);
  EXPECT_THROW(side_by_side(std::array<int64_t, 1>{3}, [&](size_t) { return parts[0]; }), Error);
}

TEST(Algebra, TwoClientsOfRankOneEqualTheHandComputedSum) {
  const auto d = at::TensorOptions().dtype(at::kDouble);
  const std::array parts{
      LoraFactors{.a = at::tensor({1., 2.}, d).view({1, 2}), .b = at::tensor({1., 0.}, d).view({2, 1})},
      LoraFactors{.a = at::tensor({3., -1.}, d).view({1, 2}), .b = at::tensor({0., 1.}, d).view({2, 1})}};
  constexpr std::array kHalves{0.5, 0.5};
  const auto stacked = stack(parts, kHalves);
  EXPECT_LT(difference(stacked.a, at::tensor({.5, 1., 1.5, -.5}, d).view({2, 2})), 1e-15);
  EXPECT_LT(difference(stacked.b, at::eye(2, d)), 1e-15);
  const auto svd = product_svd(stacked);
  EXPECT_NEAR(svd.s[0].item<double>(), 1.5962912, 1e-7);
  EXPECT_NEAR(svd.s[1].item<double>(), 1.0962912, 1e-7);
  EXPECT_NEAR(std::sqrt(squared_product_norm(parts[0])), std::sqrt(5.0), 1e-12);
  EXPECT_NEAR(std::sqrt(squared_product_norm(parts[1])), std::sqrt(10.0), 1e-12);
}

TEST(Algebra, ProductSvdEqualsTheSvdOfTheDenseMatrix) {
  for (const int64_t rank : {1, 4, 9}) {  // 9 is larger than both sides
    for (const int64_t experts : {int64_t{0}, kExperts}) {
      const auto f = factors(rank, 5, 1.7, experts);
      const auto svd = product_svd(f);
      const auto dense = std::get<1>(at::linalg_svd(delta_weight(f), false));
      EXPECT_EQ(svd.s.size(-1), std::min({rank, kIn, kOut}));
      EXPECT_LT(difference(svd.s, dense.narrow(-1, 0, svd.s.size(-1))), 1e-12);
      EXPECT_LT(difference(product(svd), delta_weight(f)), 1e-12);
      const auto largest = svd.u.gather(-2, svd.u.abs().argmax(-2, true));
      EXPECT_TRUE(largest.gt(0).all().item<bool>());
    }
  }
}

TEST(Algebra, LargestTripletsOfADenseMatrixEqualThoseOfItsWholeSvd) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const auto decay = at::pow(0.7, at::arange(40, options));
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{530, 610}, {610, 530}, {11, 700}}) {
    at::manual_seed(3);
    const auto dense = at::mm(at::randn({out, 40}, options) * decay, at::randn({40, in}, options));
    const auto svd = truncated_svd(dense, 5);
    const auto [u, s, vt] = at::linalg_svd(dense, false);
    EXPECT_LT(difference(svd.s, s.narrow(0, 0, 5)), 1e-9 * s[0].item<double>());
    EXPECT_LT(difference(product(svd), at::mm(u.narrow(1, 0, 5) * s.narrow(0, 0, 5), vt.narrow(0, 0, 5))), 1e-9);
  }
}

// An identity matrix of the longer side would take 13 GB.
TEST(Algebra, ALongMatrixWithAShortSideNeedsLittleMemory) {
  at::manual_seed(4);
  const auto dense = at::randn({40000, 3}, at::kDouble);
  const auto svd = truncated_svd(dense, 2);
  EXPECT_LT(difference(product(svd), cut_to(dense, 2)), 1e-9);
}

TEST(Algebra, AZeroUpdateHasZeroSingularValues) {
  const LoraFactors none{.a = at::zeros({2, kIn}), .b = at::zeros({kOut, 2})};
  EXPECT_EQ(product_svd(none).s.abs().max().item<double>(), 0);
}

/// Returns clients' factors of one site. Their A share the fraction `same`, as clients that started with the same A do.
std::vector<LoraFactors> clients_of(int64_t count, int64_t rank, double same, int64_t experts, at::ScalarType type) {
  at::manual_seed(31);
  const auto d = at::TensorOptions().dtype(at::kDouble);
  const auto shape = [&](int64_t rows, int64_t columns) {
    return experts > 0 ? std::vector<int64_t>{experts, rows, columns} : std::vector<int64_t>{rows, columns};
  };
  const auto common = at::randn(shape(rank, 170), d);
  std::vector<LoraFactors> parts;
  for (int64_t c = 0; c < count; ++c)
    parts.push_back({.a = (same * common + (1 - same) * at::randn(shape(rank, 170), d)).to(type),
                     .b = at::randn(shape(130, rank), d).to(type),
                     .scaling = 0.5 + static_cast<double>(c)});
  return parts;
}

// Compares both methods, below and above the sum of ranks at which the second one is used, with the dense matrix in
// float64.
TEST(Algebra, BestFactorsOfManyClientsEqualThoseOfTheDenseMatrix) {
  constexpr int64_t kKept = 5;
  for (const int64_t count : {3, 9})
    for (const double same : {0.0, 0.99, 1.0})
      for (const int64_t experts : {int64_t{0}, kExperts}) {
        const auto parts = clients_of(count, 12, same, experts, at::kBFloat16);
        const std::vector<double> weights(static_cast<size_t>(count), 1.0 / static_cast<double>(count));
        const auto best = best_factors({{"x", parts}}, weights, [&](const at::Tensor&) { return kKept; }).at("x");
        at::Tensor dense;
        for (size_t c = 0; c < parts.size(); ++c) {
          const auto own =
              at::matmul(parts[c].b.to(at::kDouble), parts[c].a.to(at::kDouble)) * (weights[c] * parts[c].scaling);
          dense = dense.defined() ? dense + own : own;
        }
        const auto [u, s, vt] = at::linalg_svd(dense, false);
        const auto cut =
            at::matmul(u.narrow(-1, 0, kKept) * s.narrow(-1, 0, kKept).unsqueeze(-2), vt.narrow(-2, 0, kKept));
        EXPECT_EQ(best.a.scalar_type(), at::kFloat);
        EXPECT_EQ(best.ranks.defined(), experts > 0);
        EXPECT_LT(difference(delta_weight({.a = best.a.to(at::kDouble), .b = best.b.to(at::kDouble)}), cut),
                  1e-6 * s.max().item<double>())
            << count << " clients, alike by " << same;
      }
}

// The ranks of 20 clients add up to 160. The last side is above 96, so that Gram matrices of the product are used.
TEST(Algebra, BestFactorsOfRanksAboveASideAreThoseOfTheProduct) {
  constexpr int64_t kClients = 20, kRank = 8;
  const auto d = at::TensorOptions().dtype(at::kDouble);
  const std::vector<double> weights(kClients, 1.0 / kClients);
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{40, 50}, {50, 40}, {40, 500}, {100, 120}}) {
    at::manual_seed(37);
    const int64_t side = std::min(out, in);
    auto dense = at::zeros({out, in}, d);
    std::vector<LoraFactors> parts;
    for (int64_t c = 0; c < kClients; ++c) {
      parts.push_back({.a = at::randn({kRank, in}, d), .b = at::randn({out, kRank}, d), .scaling = 0.5});
      dense += delta_weight(parts.back()) / static_cast<double>(kClients);
    }
    for (const int64_t kept : {int64_t{5}, side}) {
      std::vector<int64_t> values;
      const auto choose_rank = [&](const at::Tensor& s) {
        values.push_back(s.size(0));
        return kept;
      };
      const auto best = best_factors({{"x", parts}}, weights, choose_rank).at("x");
      EXPECT_EQ(values.front(), side) << "no more values than the matrix has";
      EXPECT_EQ(best.rank(), kept);
      EXPECT_LT(difference(delta_weight(best), cut_to(dense, kept)), 1e-8) << out << " x " << in;
    }
  }
}

TEST(Algebra, SmallSingularValuesAreComputedWithoutSquares) {
  auto parts = clients_of(9, 12, 0, 0, at::kDouble);
  parts[0].b *= 1e-9;  // the update has twelve negligible directions
  const std::vector<double> weights(9, 1.0);
  const auto all = best_factors({{"x", parts}}, weights, [](const at::Tensor& s) { return s.size(0); }).at("x");
  EXPECT_EQ(all.rank(), 108);
  const auto whole = stack(parts, weights);
  EXPECT_LT(difference(delta_weight(all), delta_weight(whole)), 1e-10);
}

TEST(Algebra, BestFactorsDoNotDependOnThreads) {
  const std::map<std::string, std::vector<LoraFactors>> parts{{"x", clients_of(9, 12, 0.5, kExperts, at::kFloat)},
                                                              {"y", clients_of(9, 12, 0.5, 0, at::kFloat)},
                                                              {"z", clients_of(2, 7, 0.5, kExperts, at::kFloat)}};
  const auto best_of_threads = [&](int threads, const std::string& site) {
    at::set_num_threads(threads);
    const auto count = parts.at(site).size();
    return best_factors({{site, parts.at(site)}, {"other", {parts.at(site)}}}, std::vector<double>(count, 0.2),
                        [](const at::Tensor& s) { return s.size(0) / 3; })
        .at(site);
  };
  const int threads = at::get_num_threads();
  for (const auto& [site, own] : parts) {
    const auto one = best_of_threads(1, site), three = best_of_threads(3, site);
    EXPECT_TRUE(one.a.equal(three.a) && one.b.equal(three.b)) << site;
  }
  at::set_num_threads(threads);
}

TEST(Algebra, AnExpertWithoutAnUpdateHasRankZero) {
  auto parts = clients_of(9, 12, 0, kExperts, at::kFloat);
  for (auto& part : parts) part.b[1].zero_();
  const auto kept = [](const at::Tensor& s) { return s.gt(0).sum().item<int64_t>(); };
  const auto best = best_factors({{"x", parts}}, std::vector<double>(9, 1.0), kept).at("x");
  EXPECT_TRUE(best.ranks.equal(at::tensor({108, 0, 108}, at::kLong))) << best.ranks;
  EXPECT_EQ(best.b[1].abs().max().item<double>(), 0);
}

TEST(Algebra, AnUpdateOfZerosMayBeHeldWithAnyRank) {
  for (const int64_t rank : {1, 5, 12}) {
    auto parts = clients_of(9, 12, 0, kExperts, at::kFloat);
    for (auto& part : parts) part.b[1].zero_();
    const auto best =
        best_factors({{"x", parts}}, std::vector<double>(9, 1.0), [&](const at::Tensor&) { return rank; });
    const auto& factors = best.at("x");
    EXPECT_TRUE(factors.a.isfinite().all().item<bool>() && factors.b.isfinite().all().item<bool>()) << rank;
    EXPECT_EQ(factors.b[1].abs().max().item<double>(), 0);
    EXPECT_GT(factors.b[0].abs().max().item<double>(), 0);
  }
}

TEST(Algebra, CuttingInvertsPadding) {
  const auto f = factors(3, 8, 2.0, kExperts);
  const auto wide = padded(f, 6);
  EXPECT_EQ(wide.rank(), 6);
  EXPECT_LT(difference(delta_weight(wide), delta_weight(f)), 1e-15);
  EXPECT_TRUE(truncated(wide, 3).a.equal(f.a));
  EXPECT_TRUE(truncated(wide, 3).b.equal(f.b));
  EXPECT_EQ(truncated(f, 9).rank(), 3);
  EXPECT_THROW(padded(f, 2), Error);
}

TEST(Algebra, RescalingKeepsTheProduct) {
  const auto f = factors(3, 9, 3.0);
  EXPECT_LT(difference(delta_weight(rescaled(f, 0.4)), delta_weight(f)), 1e-12);
  EXPECT_EQ(rescaled(f, 0.4).scaling, 0.4);
}

TEST(Algebra, NormOfAProductIsComputedFromFactors) {
  const auto f = factors(4, 10, 1.0, kExperts);
  EXPECT_NEAR(squared_product_norm(f), delta_weight(f).square().sum().item<double>(), 1e-9);
}

TEST(Algebra, NormOfAProductIncludesTheScaling) {
  auto sent = factors(4, 10, 2.5, kExperts);
  sent.a = sent.a.to(at::kBFloat16), sent.b = sent.b.to(at::kBFloat16);
  const LoraFactors wide{.a = sent.a.to(at::kDouble), .b = sent.b.to(at::kDouble), .scaling = sent.scaling};
  const double exact = delta_weight(wide).square().sum().item<double>();
  EXPECT_NEAR(squared_product_norm(sent), exact, 1e-6 * exact);
}

// There are more matrices than are computed at once, and some are stacks. Each site must equal its separate
// computation.
TEST(Algebra, BestFactorsOfManySitesEqualThoseOfEachSite) {
  std::map<std::string, std::vector<LoraFactors>> parts;
  for (int64_t i = 0; i < 70; ++i) {
    const auto experts = i % 9 == 4 ? kExperts : int64_t{0};
    parts[concat("site ", 100 + i)] = {factors(3, static_cast<uint64_t>(2 * i), 1.0, experts),
                                       factors(2, static_cast<uint64_t>(2 * i + 1), 1.0, experts)};
  }
  const std::vector<double> weights{0.4, 0.6};
  const RankChoice two = [](const at::Tensor&) { return 2; };
  const auto narrow = [](const LoraFactors& made) {
    return LoraFactors{.a = made.a.to(at::kBFloat16), .b = made.b.to(at::kBFloat16), .ranks = made.ranks};
  };
  const auto together = best_factors(parts, weights, two, narrow);
  ASSERT_EQ(together.size(), parts.size());
  for (const auto& [site, own] : parts) {
    const auto alone = narrow(best_factors({{site, own}}, weights, two).at(site));
    EXPECT_TRUE(at::equal(together.at(site).a, alone.a) && at::equal(together.at(site).b, alone.b)) << site;
  }
}

// Checks decision 0014: float32 factors, any number of rounds, bounded memory.
TEST(Algebra, AccumulatedBaseChangesEqualTheFloat64Sum) {
  for (const int64_t experts : {int64_t{0}, kExperts}) {
    AdapterState base;
    at::Tensor sum;
    for (uint64_t t = 0; t < 20; ++t) {
      const auto step = factors(2, 100 + t, 0.5, experts);
      AdapterState delta{{"site", {.a = step.a.to(at::kFloat), .b = step.b.to(at::kFloat), .scaling = step.scaling}}};
      const auto exact = at::matmul(delta["site"].b.to(at::kDouble), delta["site"].a.to(at::kDouble)) * 0.5;
      sum = sum.defined() ? sum + exact : exact;
      add_to_base(base, delta);
      EXPECT_LE(base.at("site").rank(), std::min(kIn, kOut));
    }
    EXPECT_LT(difference(delta_weight(base.at("site")).to(at::kDouble), sum), 1e-6 * sum.abs().max().item<double>());
  }
}

TEST(Algebra, JoinedContainsBaseChangeAdaptersAndCores) {
  const auto change = factors(2, 20), adapter = factors(3, 21, 1.5);
  auto cored = factors(3, 22);
  cored.core = at::randn({3, 3}, cored.a.options());
  const auto all = joined({{"x", change}}, {{"x", adapter}, {"y", cored}});
  EXPECT_LT(difference(delta_weight(all.at("x")), delta_weight(change) + delta_weight(adapter)), 1e-12);
  EXPECT_LT(difference(delta_weight(all.at("y")), delta_weight(cored)), 1e-12);
  EXPECT_EQ(all.at("x").rank(), all.at("y").rank());
  EXPECT_TRUE(joined({}, {{"x", adapter}}).at("x").a.equal(adapter.a)) << "a plain adapter stays as it is";
}

TEST(Algebra, JoinedPlainAdaptersHaveTheHighestRank) {
  const AdapterState adapters{{"w", factors(0, 23)}, {"x", factors(2, 24, 1.5)}, {"y", factors(3, 25, 1.5, kExperts)}};
  const AdapterState no_change;
  const Joined both(no_change, adapters);
  EXPECT_EQ(both.rank(), 3);
  for (const auto& [site, own] : joined({}, adapters)) {
    EXPECT_EQ(own.rank(), 3) << site;
    EXPECT_EQ(both.factors(site).rank(), 3) << site;
    EXPECT_EQ(own.scaling, adapters.at(site).scaling) << site;
    EXPECT_LT(difference(delta_weight(own), delta_weight(adapters.at(site))), 1e-12) << site;
  }
}

}  // namespace
}  // namespace evenkeel::lora
