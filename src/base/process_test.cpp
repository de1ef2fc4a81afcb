#include "base/process.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <vector>

namespace evenkeel {
namespace {

/// Of this process, in bytes.
int64_t resident() {
  int64_t total = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> total >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

TEST(Process, FreedMemoryInTheMiddleGoesBack) {
  constexpr size_t kPiece = size_t{1} << 16, kPieces = 2000;
  std::vector<std::vector<char>> pieces;
  for (size_t i = 0; i < kPieces; ++i) pieces.emplace_back(kPiece, 'x');
  if (::mallinfo2().uordblks < kPiece * kPieces) GTEST_SKIP() << "another allocator than glibc's, as sanitizers bring";
  const auto kept = std::move(pieces.back());  // above them all: what is freed below it does not go by itself
  pieces.clear();
  const auto before = resident();
  give_back_freed_memory();
  EXPECT_LT(resident(), before - static_cast<int64_t>(kPiece * kPieces / 2));
  EXPECT_EQ(kept.front(), 'x');
}

}  // namespace
}  // namespace evenkeel
