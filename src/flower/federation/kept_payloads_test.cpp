#include "flower/federation/kept_payloads.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/files.h"

namespace evenkeel::flower {
namespace {

at::Tensor payload(int64_t value) { return at::full({7 + value}, value, at::kByte); }

TEST(KeptPayloads, FindsThoseThatWereUsedLast) {
  KeptPayloads kept;
  for (int64_t value = 0; value < kMostKeptPayloads; ++value) kept.add(payload(value));
  EXPECT_TRUE(kept.find(payload_digest(payload(0))).equal(payload(0))) << "and it is the last one used now";
  kept.add(payload(9));
  EXPECT_FALSE(kept.find(payload_digest(payload(1))).defined());
  for (const int64_t value : {0, 2, 3, 9}) EXPECT_TRUE(kept.find(payload_digest(payload(value))).defined()) << value;
  kept.clear();
  EXPECT_FALSE(kept.find(payload_digest(payload(9))).defined());
}

TEST(KeptPayloads, APayloadThatIsKnownTakesNoSecondPlace) {
  KeptPayloads kept;
  for (int64_t value = 0; value < kMostKeptPayloads; ++value) kept.add(payload(value));
  kept.add(payload(2));
  EXPECT_TRUE(kept.find(payload_digest(payload(0))).defined());
  kept.add({});
  EXPECT_TRUE(kept.find(payload_digest(payload(1))).defined());
  EXPECT_FALSE(kept.find("").defined());
}

TEST(PayloadDigests, AreThoseOfTheBytes) {
  PayloadDigests digests;
  const auto bytes_N = payload(3);
  EXPECT_EQ(digests.of(bytes_N), sha256(std::string(10, '\x03')));
  EXPECT_EQ(digests.of(bytes_N), payload_digest(bytes_N));
  EXPECT_EQ(digests.of(payload(4)), payload_digest(payload(4)));
  EXPECT_EQ(digests.of({}), "");
}

}  // namespace
}  // namespace evenkeel::flower
