#include "fed/round/broadcasts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace evenkeel::fed {
namespace {

const void* bytes_of(const lora::EncodedPayload& encoded) { return encoded.bytes.const_data_ptr(); }

struct Sent : ::testing::Test {
  lora::Payload payload{.adapters = {{"q_proj", {.a = at::randn({3, 40}), .b = at::randn({50, 3}), .scaling = 2}}},
                        .extras = {{"mlp.phi", at::randn({8})}}};
  Broadcasts broadcasts;
  lora::EncodedPayload first = broadcasts.encoded(payload, lora::TransportDtype::kFloat32, {});

  bool again(const lora::Payload& other, lora::TransportDtype dtype = lora::TransportDtype::kFloat32) {
    const auto encoded = broadcasts.encoded(other, dtype, {});
    EXPECT_TRUE(at::equal(encoded.bytes, lora::encode(other, dtype, {}).bytes));
    return bytes_of(encoded) == bytes_of(first);
  }
};

TEST_F(Sent, EqualPayloadsAreEncodedOnce) {
  EXPECT_TRUE(again(payload));
  auto equal = payload;
  equal.extras.at("mlp.phi") = payload.extras.at("mlp.phi").clone();
  EXPECT_TRUE(again(equal));
}

TEST_F(Sent, DifferentPayloadsAreEncodedSeparately) {
  auto scaled = payload, other = payload, fewer = payload, more = payload, changed = payload;
  scaled.adapters.at("q_proj").scaling = 1;
  other.adapters.at("q_proj").b = at::randn({50, 3});
  fewer.adapters.at("q_proj").a = at::Tensor();
  more.extras["mlp.counts"] = at::zeros({8}, at::kInt);
  changed.extras.at("mlp.phi") = payload.extras.at("mlp.phi") + 1;
  for (const auto& one : {scaled, other, fewer, more, changed}) EXPECT_FALSE(again(one));
  EXPECT_FALSE(again(payload, lora::TransportDtype::kBFloat16));
  EXPECT_TRUE(again(payload)) << "the first is known still";
}

TEST(Broadcasts, LargePayloadsAreNotKept) {
  const lora::Payload large{.adapters = {{"q_proj", {.a = at::zeros({64, 300'000})}}}};
  Broadcasts broadcasts;
  const auto first = broadcasts.encoded(large, lora::TransportDtype::kFloat32, {});
  EXPECT_NE(bytes_of(first), bytes_of(broadcasts.encoded(large, lora::TransportDtype::kFloat32, {})));
}

}  // namespace
}  // namespace evenkeel::fed
