#include "base/system/transfers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace evenkeel {
namespace {

TEST(Transfers, AnUploadHasTheNumbers) {
  const std::vector<int64_t> numbers{4, -1, int64_t{1} << 40};
  EXPECT_TRUE(at::equal(uploaded(numbers, c10::kCPU), at::tensor(numbers, at::kLong)));
  EXPECT_EQ(uploaded({}, c10::kCPU).numel(), 0);
}

TEST(Transfers, ADownloadReturnsTensorsInTheirOrder) {
  const auto one = at::arange(6).view({2, 3}), other = at::tensor({0.5, -2.0});
  Download download({one, other});
  const auto& read = download.wait();
  ASSERT_EQ(read.size(), 2);
  EXPECT_TRUE(at::equal(read[0], one) && at::equal(read[1], other));
  EXPECT_TRUE(at::equal(download.wait()[0], one)) << "a second time";
  EXPECT_TRUE(Download({}).wait().empty());
}

}  // namespace
}  // namespace evenkeel
