#include "base/plain/hex.h"

#include <gtest/gtest.h>

#include <array>

namespace evenkeel {
namespace {

TEST(Hex, EveryByteIsTwoDigits) {
  EXPECT_EQ(to_hex({}), "");
  EXPECT_EQ(to_hex(std::array<uint8_t, 4>{0, 0x0f, 0xa0, 0xff}), "000fa0ff");
}

TEST(Hex, RecognisesExactlySoManyDigits) {
  EXPECT_TRUE(is_hex("0123456789abcdef", 16));
  EXPECT_TRUE(is_hex("", 0));
  for (const auto* text : {"", "abc", "abcde", "abcg", "ABCD", " abc", "ab\nc"}) EXPECT_FALSE(is_hex(text, 4)) << text;
}

}  // namespace
}  // namespace evenkeel
