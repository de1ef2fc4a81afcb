#include "base/plain/base64.h"

#include <gtest/gtest.h>

#include <string>

namespace evenkeel {
namespace {

TEST(Base64, RoundTrips) {
  for (const std::string bytes : {"", "a", "ab", "abc", "\xff\x01"})
    if (!bytes.empty()) {
      EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    }
  for (const char* text : {"", "A", "AAA", "A===", "AA=A", "AA\nA", "AAAA=", "===="})
    EXPECT_FALSE(from_base64(text)) << text;
}

}  // namespace
}  // namespace evenkeel
