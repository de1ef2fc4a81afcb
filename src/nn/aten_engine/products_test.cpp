#include "nn/aten_engine/products.h"

#include <gtest/gtest.h>

#include "nn/compute/testing.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using OutSizes = std::vector<int64_t>;

/// Returns weights with `outs` rows each that lie one below the other.
std::vector<at::Tensor> stacked_weights(const OutSizes& outs, at::ScalarType type) {
  int64_t rows = 0;
  for (const int64_t out : outs) rows += out;
  return testing::random_tensor({rows, 16}, 5, type).to(testing::test_device()).split_with_sizes(outs);
}

int64_t multiplications(const at::Tensor& x, const std::vector<at::Tensor>& weights, bool contiguous) {
  const testing::OperatorCount operators;
  aten::products(x, weights, contiguous);
  const auto counts = testing::OperatorCount::take();
  int64_t count = 0;
  for (const auto* name : {"aten::mm", "aten::bmm"})
    if (const auto found = counts.find(name); found != counts.end()) count += found->second;
  return count;
}

TEST(AtenProducts, EqualTheProductOfEachWeight) {
  for (const auto& [type, near] : {std::pair{at::kDouble, 1e-14}, {at::kFloat, 1e-6}, {at::kBFloat16, 5e-3}})
    for (const auto& outs : std::vector<OutSizes>{{8, 8, 8}, {24, 8, 8}, {8, 24, 4}, {8}})
      for (const bool contiguous : {false, true}) {
        const auto x = testing::random_tensor({7, 16}, 9, type).to(testing::test_device());
        const auto weights = stacked_weights(outs, type);
        const auto results = aten::products(x, weights, contiguous);
        ASSERT_EQ(results.size(), outs.size());
        for (size_t i = 0; i < outs.size(); ++i) {
          const auto exact = at::mm(x.cpu().to(at::kDouble), weights[i].cpu().to(at::kDouble).t());
          EXPECT_LT(testing::apart_by_norm(results[i], exact), near) << outs.size() << ' ' << i;
          EXPECT_EQ(results[i].scalar_type(), type);
          EXPECT_TRUE(!contiguous || results[i].is_contiguous());
        }
      }
}

/// A stacked product adds the same terms, so its error is that of separate products up to the order of the sum.
TEST(AtenProducts, AreAsExactAsSeparateProducts) {
  const auto x = testing::random_tensor({9, 16}, 2, at::kBFloat16).to(testing::test_device());
  const auto weights = stacked_weights({8, 8, 8}, at::kBFloat16);
  const auto together = aten::products(x, weights, false);
  double ours = 0, theirs = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto exact = at::mm(x.cpu().to(at::kDouble), weights[i].cpu().to(at::kDouble).t());
    ours += testing::apart_by_norm(together[i], exact);
    theirs += testing::apart_by_norm(at::mm(x, weights[i].t()), exact);
  }
  EXPECT_LE(ours, 1.05 * theirs);
}

TEST(AtenProducts, AreOneOperatorOnAGpuWhereNoNormReadsThem) {
  const auto x = testing::random_tensor({7, 16}, 9, at::kFloat).to(testing::test_device());
  const bool gpu = !x.is_cpu();
  const auto alike = stacked_weights({8, 8, 8}, at::kFloat), fewer_keys = stacked_weights({24, 8, 8}, at::kFloat);
  EXPECT_EQ(multiplications(x, alike, true), gpu ? 1 : 3);
  EXPECT_EQ(multiplications(x, fewer_keys, false), gpu ? 1 : 3);
  EXPECT_EQ(multiplications(x, fewer_keys, true), gpu ? 2 : 3);
  const std::vector<at::Tensor> apart{alike[0].clone(), alike[1].clone()}, turned{alike[1], alike[0]};
  EXPECT_EQ(multiplications(x, apart, false), 2) << "in memories of their own";
  EXPECT_EQ(multiplications(x, turned, false), 2) << "in another order";
}

}  // namespace
}  // namespace evenkeel::nn
