#include "lora/adapter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/plain/error.h"

namespace evenkeel::lora {
namespace {

const Site kDense{.experts = 0, .in = 7, .out = 5, .moe_layer = {}};
const Site kStack{.experts = 3, .in = 9, .out = 4, .moe_layer = "model.layers.0.mlp"};

TEST(MakeLora, InitialisesLikePeft) {
  const auto f = make_lora("q", {.experts = 0, .in = 400, .out = 30, .moe_layer = {}}, 25, 0.5, 1);
  EXPECT_EQ(f.a.sizes(), (at::IntArrayRef{25, 400}));
  EXPECT_EQ(f.b.sizes(), (at::IntArrayRef{30, 25}));
  EXPECT_EQ(f.b.abs().max().item<float>(), 0);
  const float bound = 1 / std::sqrt(400.0f);
  EXPECT_LT(f.a.abs().max().item<float>(), bound);
  EXPECT_NEAR(f.a.var().item<float>(), bound * bound / 3, 0.03 * bound * bound);
  EXPECT_EQ(f.scaling, 0.5);
}

TEST(MakeLora, RandomValuesDependOnlyOnSeedSiteAndExpert) {
  const auto whole = make_lora("up", kStack, 2, 1, 42);
  EXPECT_TRUE(at::equal(whole.a, make_lora("up", kStack, 2, 1, 42).a));
  EXPECT_FALSE(at::equal(whole.a, make_lora("up", kStack, 2, 1, 43).a));
  EXPECT_FALSE(at::equal(whole.a, make_lora("down", kStack, 2, 1, 42).a));
  EXPECT_FALSE(at::equal(whole.a[0], whole.a[1]));
  auto larger = kStack;
  larger.experts = 5;
  EXPECT_TRUE(at::equal(make_lora("up", larger, 2, 1, 42).a.slice(0, 0, 3), whole.a));
  EXPECT_THROW(make_lora("up", kStack, 0, 1, 42), Error);
}

TEST(DeltaWeight, IsScalingTimesBTimesCoreTimesA) {
  for (const auto& site : {kDense, kStack}) {
    auto f = make_lora("x", site, 2, 1.5, 3);
    f.b = at::ones_like(f.b) * 0.25;
    f.core = at::tensor({1.0f, 2.0f, 3.0f, 4.0f}).view({2, 2});
    const auto delta = delta_weight(f);
    ASSERT_EQ(delta.size(-2), site.out);
    ASSERT_EQ(delta.size(-1), site.in);
    const auto row = (f.a.select(-2, 0) * 4 + f.a.select(-2, 1) * 6) * 0.25 * 1.5;
    EXPECT_TRUE(delta.select(-2, 1).allclose(row));
  }
}

TEST(Clone, SharesNoStorage) {
  auto adapters = make_adapters({{"q", kDense}, {"up", kStack}}, 2, 1, 3);
  const auto copy = clone(adapters);
  adapters.at("q").a.zero_();
  EXPECT_GT(copy.at("q").a.abs().max().item<float>(), 0);
}

TEST(CheckFinite, NamesTheSite) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    auto adapters = make_adapters({{"q", kDense}, {"up", kStack}}, 2, 1, 3);
    EXPECT_NO_THROW(check_finite(adapters, "client 1"));
    adapters.at("up").b[1][2][0] = bad;
    try {
      check_finite(adapters, "client 1");
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kNumeric);
      EXPECT_STREQ(error.what(), "[numeric] client 1: the adapter of up holds a value that is not finite");
    }
  }
}

}  // namespace
}  // namespace evenkeel::lora
