#include "nn/kernels/primitives/vector.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "nn/testing.h"

namespace evenkeel::nn::kernels {
namespace {

using testing::random_tensor;

/// Tests widths that are and are not a multiple of the vector, and numbers of rows below, at and above the block size.
template <typename T>
void for_each_shape(at::ScalarType dtype, const auto& see) {
  for (const int64_t width : {1, 16, 37, 128})
    for (const int64_t count : {1, 3, 4, 11}) {
      const auto rows = testing::random_tensor({count, width}, 1, dtype);
      see(count, width, rows.template const_data_ptr<T>());
    }
}

template <typename T>
void expect_dots_of_rows(at::ScalarType dtype) {
  for_each_shape<T>(dtype, [&](int64_t count, int64_t width, const T* rows) {
    const auto x = testing::random_tensor({width}, 2, dtype);
    std::vector<T> out(static_cast<size_t>(count));
    dots(x.template const_data_ptr<T>(), rows, count, width, out.data());
    for (int64_t j = 0; j < count; ++j)
      EXPECT_EQ(out[static_cast<size_t>(j)], dot(x.template const_data_ptr<T>(), rows + j * width, width))
          << count << " rows of " << width << ", row " << j;
  });
}

template <typename T>
void expect_sums_of_rows(at::ScalarType dtype) {
  for_each_shape<T>(dtype, [&](int64_t count, int64_t width, const T* rows) {
    const auto alphas = testing::random_tensor({count}, 2, dtype);
    auto together = testing::random_tensor({width}, 3, dtype), one_by_one = together.clone();
    add_rows(alphas.template const_data_ptr<T>(), rows, count, width, together.template mutable_data_ptr<T>());
    for (int64_t j = 0; j < count; ++j)
      axpy(alphas.template const_data_ptr<T>()[j], rows + j * width, one_by_one.template mutable_data_ptr<T>(), width);
    EXPECT_TRUE(at::equal(together, one_by_one)) << count << " rows of " << width;
  });
}

TEST(Vector, DotsOfSeveralRowsEqualDotsOfEachRow) {
  expect_dots_of_rows<float>(at::kFloat);
  expect_dots_of_rows<double>(at::kDouble);
}

TEST(Vector, AddingSeveralRowsEqualsAddingThemOneByOne) {
  expect_sums_of_rows<float>(at::kFloat);
  expect_sums_of_rows<double>(at::kDouble);
}

}  // namespace
}  // namespace evenkeel::nn::kernels
