#include "lora/payload.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel::lora {
namespace {

class PayloadTest : public ::testing::Test {
 protected:
  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  const fs::path file_ = folder_ / "payload.safetensors";
};

Payload example() {
  Payload payload;
  payload.adapters = make_adapters({{"model.layers.0.self_attn.q_proj", {0, 7, 5, {}}},
                                    {"model.layers.0.mlp.experts.up_proj", {3, 9, 4, "model.layers.0.mlp"}}},
                                   2, 0.1 + 0.2, 42);
  payload.adapters.begin()->second.core = at::ones({3, 2, 2}) / 3;
  payload.extras = {{"model.layers.0.mlp.counts", at::arange(3, at::kInt)},
                    {"rho", at::scalar_tensor(1.0 / 3, at::kDouble)},
                    {"model.layers.0.mlp.phi", at::ones({3}, at::kDouble) / 3},
                    {"half", at::ones({2}, at::kHalf) / 3}};
  return payload;
}

void expect_equal(const at::Tensor& x, const at::Tensor& y, const std::string& what) {
  ASSERT_EQ(x.defined(), y.defined()) << what;
  if (!x.defined()) return;
  EXPECT_EQ(x.scalar_type(), y.scalar_type()) << what;
  EXPECT_TRUE(at::equal(x, y)) << what;
}

/// Returns the payload after encoding and decoding.
Payload arrived(const Payload& payload, TransportDtype dtype) {
  return received(decode(encode(payload, dtype, {}).bytes, "the wire"));
}

TEST_F(PayloadTest, FileRoundTripAndReportedSizeAreExact) {
  for (const auto dtype : {TransportDtype::kFloat32, TransportDtype::kBFloat16}) {
    const auto encoded = encode(example(), dtype, {});
    EXPECT_EQ(encoded.size(), payload_size(example(), dtype));
    EXPECT_EQ(encoded.parts, payload_parts(example(), dtype, {}));
    write_file_atomic(file_, {static_cast<const char*>(encoded.bytes.const_data_ptr()), encoded.bytes.nbytes()});
    const auto loaded = load_payload(file_), wired = arrived(example(), dtype);
    ASSERT_EQ(loaded.adapters.size(), example().adapters.size());
    for (const auto& [site, f] : example().adapters) {
      const auto widened = received(loaded.adapters.at(site));
      const auto& in_memory = wired.adapters.at(site);
      expect_equal(widened.a, in_memory.a, site);
      expect_equal(widened.b, in_memory.b, site);
      expect_equal(widened.core, in_memory.core, site);
      EXPECT_EQ(in_memory.scaling, f.scaling);
      EXPECT_EQ(loaded.adapters.at(site).scaling, f.scaling);
    }
    ASSERT_EQ(loaded.extras.size(), example().extras.size());
    for (const auto& [name, tensor] : wired.extras) expect_equal(loaded.extras.at(name), tensor, name);
  }
}

TEST_F(PayloadTest, DeferredEncodingGivesTheSameBytes) {
  for (const auto dtype : {TransportDtype::kFloat32, TransportDtype::kBFloat16}) {
    const auto now = encode(example(), dtype, {});
    const DeferredPayload late(example(), dtype, {}), made(now);
    int64_t bytes = 0;
    for (const auto& [name, part] : payload_parts(example(), TransportDtype::kAsTheyAre, {}))
      bytes += name == "header" ? 0 : part;
    EXPECT_EQ(late.bytes, bytes) << "in memory, not on the wire";
    EXPECT_EQ(made.bytes, now.size());
    for (const auto& each : {late.encode(), late.encode(), made.encode()}) {
      EXPECT_TRUE(at::equal(each.bytes, now.bytes));
      EXPECT_EQ(each.parts, now.parts);
    }
  }
}

TEST_F(PayloadTest, DecodedTensorsKeepTheirBytesAlive) {
  const auto original = example();
  const auto decoded = decode(encode(original, TransportDtype::kFloat32, {}).bytes.clone(), "gone");
  for (const auto& [site, f] : original.adapters) EXPECT_TRUE(at::equal(decoded.adapters.at(site).a, f.a));
}

TEST_F(PayloadTest, PartsAddUpToTheFileSize) {
  auto payload = example();
  payload.adapters["model.layers.0.mlp.gate"] = make_lora("gate", {0, 7, 3, {}}, 2, 1.0, 1);
  payload.base_delta["model.layers.0.mlp.gate"] = make_lora("gate", {0, 7, 3, {}}, 1, 1.0, 1);
  payload.base_delta["model.layers.0.self_attn.q_proj"] = make_lora("q", {0, 7, 5, {}}, 3, 1.0, 1);
  const Sites sites{{"model.layers.0.mlp.gate", {.in = 7, .out = 3, .role = SiteRole::kRouter}}};
  const auto parts = payload_parts(payload, TransportDtype::kBFloat16, sites);
  const std::map<std::string, int64_t> expected{{"adapters", 2 * (2 * (7 + 5) + 3 * 2 * (9 + 4) + 3 * 2 * 2)},
                                                {"router_adapters", 2 * 2 * (7 + 3)},
                                                {"base_delta", 2 * 3 * (7 + 5)},
                                                {"router_base_delta", 2 * (7 + 3)},
                                                {"counts", 4 * 3},
                                                {"rho", 8},
                                                {"phi", 8 * 3},
                                                {"half", 2 * 2}};
  int64_t sum = parts.at("header");
  for (const auto& [name, bytes] : expected) {
    EXPECT_EQ(parts.at(name), bytes) << name;
    sum += bytes;
  }
  EXPECT_EQ(parts.size(), expected.size() + 1);
  EXPECT_EQ(sum, payload_size(payload, TransportDtype::kBFloat16));
  EXPECT_GT(parts.at("header"), 0);
}

TEST_F(PayloadTest, Float32KeepsEveryBitAndBFloat16Rounds) {
  const auto original = example();
  const auto& site = original.adapters.begin()->first;
  const auto exact = arrived(original, TransportDtype::kFloat32);
  EXPECT_TRUE(at::equal(exact.adapters.at(site).a, original.adapters.at(site).a));
  const auto rounded = arrived(original, TransportDtype::kBFloat16);
  EXPECT_FALSE(at::equal(rounded.adapters.at(site).a, original.adapters.at(site).a));
  EXPECT_TRUE(rounded.adapters.at(site).a.allclose(original.adapters.at(site).a, 0.004));
  EXPECT_EQ(rounded.extras.at("rho").item<double>(), 1.0 / 3);
  EXPECT_EQ(rounded.extras.at("model.layers.0.mlp.counts").scalar_type(), at::kInt);
  EXPECT_EQ(rounded.extras.at("half").scalar_type(), at::kFloat);
  EXPECT_EQ(rounded.extras.at("model.layers.0.mlp.phi")[0].item<double>(), 1.0 / 3);
}

TEST_F(PayloadTest, RoundingTwiceEqualsRoundingOnce) {
  const auto once = arrived(example(), TransportDtype::kBFloat16);
  const auto twice = arrived(once, TransportDtype::kBFloat16);
  for (const auto& [site, f] : once.adapters) EXPECT_TRUE(at::equal(f.a, twice.adapters.at(site).a));
}

TEST_F(PayloadTest, GradientsAreNotEncoded) {
  auto payload = example();
  for (auto& [site, f] : payload.adapters) f.a.requires_grad_();
  EXPECT_FALSE(arrived(payload, TransportDtype::kFloat32).adapters.begin()->second.a.requires_grad());
}

TEST_F(PayloadTest, RejectsFilesThatAreNotPayloads) {
  const auto a = at::ones({2, 7}), b = at::ones({5, 2});
  save_safetensors(file_, {{"adapter/q/a", a}, {"adapter/q/b", b}});
  EXPECT_THROW(load_payload(file_), Error);
  save_safetensors(file_, {{"adapter/q/c", a}}, {{"scaling", R"({"q":1})"}});
  EXPECT_THROW(load_payload(file_), Error);
  save_safetensors(file_, {{"adapter/q/a", a}, {"adapter/q/b", b}}, {{"scaling", "{}"}});
  EXPECT_THROW(load_payload(file_), Error);
  save_safetensors(file_, {{"weights", a}}, {{"scaling", "{}"}});
  EXPECT_THROW(load_payload(file_), Error);
  save_safetensors(file_, {{"adapter/q/a", a}, {"adapter/q/b", b}}, {{"scaling", R"({"q":1})"}});
  EXPECT_NO_THROW(load_payload(file_));
}

TEST_F(PayloadTest, RejectsRanksThatDoNotMatchTheRows) {
  const auto a = at::ones({5, 7}), b = at::ones({5, 3});
  const auto refusal = [&](const at::Tensor& ranks_E, const at::Tensor& rows_a, const at::Tensor& rows_b) {
    save_safetensors(file_, {{"adapter/q/a", rows_a}, {"adapter/q/b", rows_b}, {"adapter/q/ranks", ranks_E}},
                     {{"scaling", R"({"q":1})"}});
    try {
      load_payload(file_);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(refusal(at::tensor({2, 0, 3}, at::kLong), a, b), "no error");
  for (const auto& ranks : {at::tensor({2, 0, 4}, at::kLong), at::tensor({6, -1, 0}, at::kLong),
                            at::tensor({2, 0, 3}, at::kInt), at::ones({5, 1}, at::kLong), at::empty({0}, at::kLong)})
    EXPECT_NE(refusal(ranks, a, b).find("do not fit their ranks"), std::string::npos) << ranks.sizes();
  // In 64-bit arithmetic, twice this number plus 7 overflows to 5.
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_NE(refusal(at::tensor({most, most, int64_t{7}}, at::kLong), a, b).find("do not fit"), std::string::npos);
  EXPECT_NE(refusal(at::empty({0}, at::kLong), at::empty({0, 7}), at::empty({0, 3})).find("do not fit"),
            std::string::npos);
}

}  // namespace
}  // namespace evenkeel::lora
