#include "base/system/process.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace evenkeel {
namespace {

TEST(Process, TrimReturnsFreedMemoryInTheMiddleOfTheHeap) {
  const testing::FreedMemory freed;
  if (!freed.is_glibcs()) GTEST_SKIP() << "another allocator than glibc's";
  EXPECT_FALSE(freed.went_back());
  give_back_freed_memory();
  EXPECT_TRUE(freed.went_back());
}

}  // namespace
}  // namespace evenkeel
