#include "secure/shamir.h"

#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "crypto/testing.h"
#include "crypto/x25519.h"

namespace evenkeel::secure {
namespace {

using evenkeel::testing::hex;
using evenkeel::testing::secret_of;

std::vector<Share> shares_of_the_vector() {
  const std::vector coefficients{secret_of("coefficient 1"), secret_of("coefficient 2")};
  return split(secret_of("mask key 3"), 4, coefficients);
}

TEST(Shamir, SharesAreThoseOfTheVector) {
  const auto shares = shares_of_the_vector();
  EXPECT_EQ(hex(shares[0].value.view()), "c4f89fb2d1735a081e567603cad6ff68bd14e5a5b3b005c202192193ec713aaf");
  EXPECT_EQ(hex(shares[3].value.view()), "a1c36877e1ab14e346ff79e251e4b154fc2499d3b76632e05b9a38d679fcb1fe");
  EXPECT_EQ(shares[3].place, 3);
}

TEST(Shamir, AnyThreeOfFourSharesJoinAndTwoDoNot) {
  const auto shares = shares_of_the_vector();
  for (size_t left_out = 0; left_out < 4; ++left_out) {
    std::vector<Share> three = shares;
    three.erase(three.begin() + static_cast<std::ptrdiff_t>(left_out));
    const auto secret = joined(three);
    EXPECT_EQ(hex(secret.view()), "410c240fba698044b97ef99fa8529f2328ba4e8949f0cfc1700b0193d07cd038");
    EXPECT_EQ(hex(crypto::x25519_public(secret)).substr(0, 8), "6d00e422");
    three.pop_back();
    EXPECT_FALSE(joined(three) == secret);
  }
}

TEST(Shamir, RandomSharesOfTheLargestRosterJoinAtTheThreshold) {
  const auto secret = crypto::Secret::random();
  const auto shares = split(secret, kMostShares, 128);
  EXPECT_EQ(joined(std::span(shares).last(128)), secret);
  EXPECT_EQ(joined(shares), secret);
  EXPECT_FALSE(joined(std::span(shares).first(127)) == secret);
}

TEST(Shamir, ThresholdsThatCannotBeAreRefused) {
  for (const auto& [members, threshold] : {std::pair{3, 4}, std::pair{3, 0}, std::pair{255, 3}})
    EXPECT_THROW(split(crypto::Secret(), members, threshold), Error);
  const auto shares = shares_of_the_vector();
  const std::vector twice{shares[0], shares[0]};
  EXPECT_THROW(joined(twice), Error);
  EXPECT_THROW(joined({}), Error);
}

}  // namespace
}  // namespace evenkeel::secure
