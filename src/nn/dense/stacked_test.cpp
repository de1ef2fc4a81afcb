#include "nn/dense/stacked.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "nn/dense/gradients.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::random_tensor;

/// Returns three leaves [2, 5, 3] on the test device.
std::vector<at::Tensor> three_leaves() {
  std::vector<at::Tensor> leaves;
  for (uint64_t i = 0; i < 3; ++i)
    leaves.push_back(random_tensor({2, 5, 3}, 40 + i).to(testing::test_device()).requires_grad_(true));
  return leaves;
}

/// Returns the gradients of a term of the slices, added to gradients of ones, or to none.
/// \param give  returns what the gradients begin as
std::vector<at::Tensor> gradients(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& give) {
  const auto leaves = three_leaves();
  const auto first = give(leaves);
  for (size_t i = 0; i < first.size(); ++i) leaves[i].mutable_grad() = first[i].fill_(1);
  (stacked_slices(leaves, -2, 1, 2).square() * random_tensor({3, 2, 2, 3}, 50).to(leaves[0].device())).sum().backward();
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!first.empty()) {
      EXPECT_TRUE(leaves[i].grad().is_same(first[i])) << "added in place";
    }
    result.push_back(leaves[i].grad().cpu());
  }
  return result;
}

TEST(StackedSlicesOnTestDevice, AreTheSlicesOfAllTensors) {
  const auto leaves = three_leaves();
  const auto all = stacked_slices(leaves, -1, 1, 2);
  ASSERT_EQ(all.sizes(), (at::IntArrayRef{3, 2, 5, 2}));
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(all[i].equal(leaves[static_cast<size_t>(i)].narrow(2, 1, 2)));
  EXPECT_TRUE(stacked(leaves).equal(at::stack(leaves)));
}

TEST(StackedSlices, HaveTheGradientsOfDifferences) {
  const auto of = [](int64_t axis, int64_t begin) {
    return [=](const std::vector<at::Tensor>& x) { return stacked_slices(x, axis, begin, 2).exp(); };
  };
  const std::vector<at::Tensor> inputs{random_tensor({4, 3}, 1), random_tensor({4, 3}, 2)};
  for (const auto& [axis, begin] : {std::pair{0, 2}, std::pair{0, 0}, std::pair{1, 1}, std::pair{-1, 0}})
    testing::expect_gradients_match(of(axis, begin), inputs);
}

TEST(StackedSlicesOnTestDevice, AddToGradientsWhereverTheyLie) {
  const auto none = gradients([](const auto&) { return std::vector<at::Tensor>(); });
  const auto apart = gradients([](const auto& leaves) {
    std::vector<at::Tensor> zeros;
    for (const auto& leaf : leaves) zeros.push_back(at::zeros_like(leaf.detach()));
    return zeros;
  });
  const auto in_one_stack = gradients([](const auto& leaves) { return stacked_zeros(leaves); });
  const auto in_another_order = gradients([](const auto& leaves) {
    auto zeros = stacked_zeros(leaves);
    std::swap(zeros[0], zeros[2]);
    return zeros;
  });
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GT(none[i].abs().max().item<double>(), 0.1);
    EXPECT_EQ(none[i].narrow(1, 3, 2).abs().max().item<double>(), 0) << "rows that are not in the slice";
    EXPECT_TRUE(apart[i].equal(none[i] + 1));
    EXPECT_TRUE(in_one_stack[i].equal(apart[i]));
    EXPECT_TRUE(in_another_order[i].equal(apart[i]));
  }
}

TEST(StackedZeros, BeginAtMultiplesOf64Bytes) {
  const auto zeros = stacked_zeros({at::ones({3, 5}), at::ones({3, 5}), at::ones({3, 5})});
  ASSERT_EQ(zeros.size(), 3u);
  for (const auto& tensor : zeros) {
    EXPECT_TRUE(tensor.equal(at::zeros({3, 5})) && tensor.is_contiguous() && tensor.is_alias_of(zeros[0]));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64, 0u);
  }
}

}  // namespace
}  // namespace evenkeel::nn
