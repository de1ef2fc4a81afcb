#include "nn/aten_engine/attention.h"

#include <gtest/gtest.h>

namespace evenkeel::nn::aten {
namespace {

TEST(AtenFlashAttention, NeedsComputeCapability8) {
  for (const auto* capability : {"8.0", "8.9", "9.0", "10.0", "12.1", ""}) EXPECT_TRUE(has_flash(capability));
  for (const auto* capability : {"5.2", "7.0", "7.5"}) EXPECT_FALSE(has_flash(capability)) << capability;
}

}  // namespace
}  // namespace evenkeel::nn::aten
