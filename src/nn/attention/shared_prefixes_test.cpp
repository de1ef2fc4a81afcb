#include "nn/attention/shared_prefixes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::random_tensor;

at::Tensor rows_of(std::vector<int64_t> rows) { return at::tensor(rows, at::kLong); }

const std::vector<int64_t> kRows{0, 1, 2, 0, 1, 3, 0, 1, 2};  // nine tokens that share four rows
const std::vector<int64_t> kFirsts{0, 1, 2, 5};

TEST(SharedRows, ExpandCopiesTheRowOfEachToken) {
  const auto x_R = testing::random_tensor({4, 3, 5}, 1);
  EXPECT_TRUE(at::equal(SharedRows(rows_of(kRows)).expand(x_R), x_R.index_select(0, rows_of(kRows))));
}

TEST(SharedRows, RepresentativesInvertExpand) {
  const SharedRows shared(rows_of(kRows));
  const auto x_R = testing::random_tensor({4, 7}, 1, at::kFloat);
  EXPECT_TRUE(at::equal(shared.representatives(shared.expand(x_R)), x_R));
}

TEST(SharedRows, SumByRowAndScatterAreTransposes) {
  const SharedRows shared(rows_of(kRows));
  const auto x_R = testing::random_tensor({4, 7}, 1), y_T = testing::random_tensor({9, 7}, 2);
  const auto dot = [](const at::Tensor& x, const at::Tensor& y) { return (x * y).sum().item<double>(); };
  EXPECT_NEAR(dot(shared.expand(x_R), y_T), dot(x_R, shared.sum_by_row(y_T)), 1e-12);
  EXPECT_NEAR(dot(shared.representatives(y_T), x_R), dot(y_T, shared.scatter_to_representatives(x_R)), 1e-12);
  EXPECT_TRUE(at::equal(shared.scatter_to_representatives(x_R).index_select(0, rows_of(kFirsts)), x_R));
}

TEST(SharedRows, WithoutSharedRowsAllOperationsReturnTheirInput) {
  const SharedRows none;
  const auto x = testing::random_tensor({4, 7}, 1);
  EXPECT_TRUE(none.expand(x).is_same(x) && none.representatives(x).is_same(x) &&
              none.scatter_to_representatives(x).is_same(x) && none.sum_by_row(x).is_same(x));
}

TEST(SharedRows, RejectsRowsNotNumberedInOrderOfAppearance) {
  EXPECT_THROW(SharedRows(rows_of({0, 2, 1})), Error);
  EXPECT_THROW(SharedRows(rows_of({0, -1})), Error);
}

}  // namespace
}  // namespace evenkeel::nn
