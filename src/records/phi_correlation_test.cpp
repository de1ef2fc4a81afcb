#include "records/phi_correlation.h"

#include <gtest/gtest.h>

namespace evenkeel::records {
namespace {

TEST(PhiCorrelation, OfALineIsOneAndItsSlope) {
  const auto found = phi_correlation({{1, -1, 3}, {5, 7, -3}}, {{0, 1, -1}, {-2, -3, 2}});
  EXPECT_NEAR(found.pearson, -1, 1e-12);
  EXPECT_NEAR(found.spearman, -1, 1e-12);
  EXPECT_NEAR(found.slope, -2, 1e-12);
  EXPECT_NEAR(found.intercept, 1, 1e-12);
}

// The expected values are those of scipy.stats: pearsonr, spearmanr and linregress of the same ten pairs.
TEST(PhiCorrelation, EqualValuesShareTheMeanOfTheirRanks) {
  const auto found = phi_correlation({{0.3, 0.1, 0.1, -0.2, 0.5}, {-0.4, 0.0, 0.2, -0.1, 0.1}},
                                     {{0.05, 0.2, 0.1, 0.4, 0.05}, {0.7, 0.3, 0.05, 0.3, 0.15}});
  EXPECT_NEAR(found.pearson, -0.9179499128874198, 1e-9);
  EXPECT_NEAR(found.spearman, -0.9719673332444922, 1e-9);
  EXPECT_NEAR(found.slope, -1.1364829396325458, 1e-9);
  EXPECT_NEAR(found.intercept, 0.3213910761154855, 1e-9);
}

TEST(PhiCorrelation, IsZeroWhereOneOfTheTwoIsConstant) {
  const auto found = phi_correlation({{0, 0, 0}, {0, 0, 0}}, {{0.1, 0.2, 0.3}, {0.3, 0.1, 0.2}});
  EXPECT_EQ(found.pearson, 0);
  EXPECT_EQ(found.spearman, 0);
  EXPECT_EQ(found.slope, 0);
}

TEST(PhiCorrelation, PhiIsReadInTheOrderOfTheLayers) {
  fed::RoundRecord round;
  round.experts.emplace().layers = {"b", "a"};
  EXPECT_TRUE(phi_of(round).empty()) << "the method has no phi";
  round.diagnostics.lists = {{"a.phi", {1.0, 2.0, 3.0}}, {"b.phi", {4.0, 5.0, 6.0}}};
  EXPECT_EQ(phi_of(round), (std::vector<std::vector<double>>{{4, 5, 6}, {1, 2, 3}}));
}

}  // namespace
}  // namespace evenkeel::records
