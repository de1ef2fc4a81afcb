#include "data/padding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace evenkeel::data {
namespace {

std::vector<int64_t> list(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

TEST(Padding, IsALastSequenceOutsideOfEveryMicroBatch) {
  const std::vector<Example> examples{{.ids = {3, 1, 4}}, {.ids = {1, 5}}};
  const auto batch = pack(examples, 1), result = padded(batch, 8);
  EXPECT_EQ(result.offsets, (std::vector<int64_t>{0, 3, 5, 8}));
  EXPECT_EQ(list(result.ids), (std::vector<int64_t>{3, 1, 4, 1, 5, 0, 0, 0}));
  EXPECT_EQ(list(result.positions), (std::vector<int64_t>{0, 1, 2, 0, 1, 0, 0, 0}));
  EXPECT_FALSE(result.rows_T.defined());
  EXPECT_TRUE(at::equal(result.targets, batch.targets) && at::equal(result.target_rows, batch.target_rows));
  ASSERT_EQ(result.ends.size(), 2);
  EXPECT_EQ(result.ends.back().tokens, 5);
  EXPECT_EQ(padding_tokens(result), 3);
  EXPECT_EQ(padding_tokens(batch), 0);
}

TEST(Padding, IsNeverEmptyAndEndsASingleMicroBatch) {
  const auto result = padded(pack(std::vector<Example>{{.ids = {2, 7, 1, 8}}}), 4);
  EXPECT_EQ(result.offsets, (std::vector<int64_t>{0, 4, 8}));
  ASSERT_EQ(result.ends.size(), 1);
  EXPECT_EQ(result.ends.front().tokens, 4);
  EXPECT_EQ(result.ends.front().targets, 3);
}

TEST(Padding, OfSharedRowsGivesEachRowATokenAndEachTokenARow) {
  const std::vector<Example> examples{{.ids = {3, 1, 4, 1}}, {.ids = {3, 1, 4, 5}}, {.ids = {3, 1, 4, 9}}};
  for (const int64_t step : {2, 4, 5, 6, 7}) {
    const auto batch = pack_shared(examples), result = padded(batch, step);
    ASSERT_TRUE(result.rows_T.defined());
    const int64_t rows = result.ids.size(0);
    EXPECT_EQ(rows % step, 0) << step;
    EXPECT_EQ(result.tokens() % step, 0) << step;
    EXPECT_EQ(result.rows_T.size(0), result.tokens());
    EXPECT_EQ(result.rows_T.max().item<int64_t>(), rows - 1);
    const auto of_padding = result.rows_T.slice(0, batch.tokens());
    EXPECT_EQ(of_padding.min().item<int64_t>(), batch.ids.size(0)) << "no token of the padding has a row of a sequence";
    EXPECT_EQ(std::get<0>(at::_unique2(of_padding)).size(0), rows - batch.ids.size(0)) << step;
  }
}

}  // namespace
}  // namespace evenkeel::data
