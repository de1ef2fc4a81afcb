#include "lora/equal_factors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace evenkeel::lora {
namespace {

LoraFactors factors(std::vector<int64_t> a, std::vector<int64_t> b) { return {.a = at::zeros(a), .b = at::zeros(b)}; }

TEST(EqualFactors, GroupsSitesOfEqualShapesInNameOrder) {
  const AdapterState adapters{{"0.k", factors({2, 5}, {3, 2})},
                              {"0.up", factors({4, 2, 5}, {4, 7, 2})},
                              {"1.k", factors({2, 5}, {3, 2})},
                              {"1.q", factors({2, 5}, {6, 2})},
                              {"1.up", factors({4, 2, 5}, {4, 7, 2})}};
  const auto groups = equal_factors(adapters);
  ASSERT_EQ(groups.size(), 3u);
  const std::vector<std::vector<std::string>> expected{{"0.k", "1.k"}, {"0.up", "1.up"}, {"1.q"}};
  for (size_t g = 0; g < groups.size(); ++g) {
    ASSERT_EQ(groups[g].a.size(), expected[g].size());
    EXPECT_TRUE(groups[g].core.empty());
    for (size_t i = 0; i < expected[g].size(); ++i) {
      EXPECT_TRUE(groups[g].a[i].is_same(adapters.at(expected[g][i]).a));
      EXPECT_TRUE(groups[g].b[i].is_same(adapters.at(expected[g][i]).b));
    }
  }
}

TEST(EqualFactors, LeavesOutFactorsThatAreNotThere) {
  AdapterState adapters{{"0.q", {}}, {"1.q", {}}};
  for (auto& [site, f] : adapters) f.b = at::zeros({3, 2});
  const auto groups = equal_factors(adapters);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_TRUE(groups[0].a.empty() && groups[0].core.empty());
  EXPECT_EQ(groups[0].b.size(), 2u);
  EXPECT_TRUE(equal_factors({}).empty());
}

}  // namespace
}  // namespace evenkeel::lora
