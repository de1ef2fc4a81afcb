#include "lora/packing.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "base/plain/error.h"
#include "lora/payload.h"

namespace evenkeel::lora {
namespace {

Sites sites_of(int64_t layers, int64_t experts) {
  Sites sites;
  for (int64_t l = 0; l < layers; ++l) {
    const auto layer = concat("model.layers.", l);
    sites[layer + ".self_attn.q_proj"] = {0, 7, 5, {}};
    sites[layer + ".mlp.gate"] = {0, 7, 3, {}};
    sites[layer + ".mlp.experts.up_proj"] = {experts, 9, 4, layer + ".mlp"};
  }
  return sites;
}

EncodedPayload payload_of(const Sites& sites, int64_t rank, TransportDtype dtype = TransportDtype::kFloat32) {
  Payload payload{.adapters = make_adapters(sites, rank, 0.5, 3)};
  payload.extras = {{"model.layers.0.mlp.counts", at::arange(3, at::kInt)},
                    {"rho", at::scalar_tensor(1.0 / 3, at::kDouble)},
                    {"model.layers.1.mlp.experts.up_proj.pg_a", at::ones({3, 2, 9})},
                    {"model.layers.1.mlp.phi", at::ones({3})}};
  return encode(payload, dtype, sites);
}

std::string_view text_of(const at::Tensor& bytes_N) {
  return {static_cast<const char*>(bytes_N.const_data_ptr()), bytes_N.nbytes()};
}

std::vector<std::string> names_of(const Packing& packing) {
  std::vector<std::string> names;
  for (const auto& array : packing.arrays) names.push_back(array.name);
  return names;
}

TEST(Packing, HasOneArrayPerLayerAndFactor) {
  const auto packing = pack_payload(text_of(payload_of(sites_of(2, 3), 2).bytes), "a test");
  EXPECT_EQ(names_of(packing),
            (std::vector<std::string>{"vectors/Double", "adapter/model.layers.0/a", "adapter/model.layers.0/b",
                                      "adapter/model.layers.1/a", "adapter/model.layers.1/b",
                                      "extra/model.layers.1/pg_a", "vectors/Float", "vectors/Int"}));
}

TEST(Packing, CoversEveryByteOnce) {
  for (const auto dtype : {TransportDtype::kFloat32, TransportDtype::kBFloat16}) {
    const auto payload = payload_of(sites_of(3, 4), 2, dtype);
    const auto packing = pack_payload(text_of(payload.bytes), "a test");
    EXPECT_EQ(packing.bytes, payload.size());
    auto end = static_cast<int64_t>(packing.head.size());
    for (const auto& array : packing.arrays) {
      EXPECT_EQ(array.begin, end) << array.name;
      EXPECT_EQ(array.begin % static_cast<int64_t>(at::elementSize(array.type)), 0) << array.name;
      end += array.bytes;
    }
    EXPECT_EQ(end, payload.size());
  }
}

TEST(Packing, NeedsOnlyTheHeaderOfAPayload) {
  const auto payload = payload_of(sites_of(2, 3), 2);
  const auto whole = pack_payload(text_of(payload.bytes), "a test");
  const auto of_head = pack_payload(whole.head, "a test");
  EXPECT_EQ(of_head.bytes, whole.bytes);
  EXPECT_EQ(of_head.layout, whole.layout);
  EXPECT_EQ(names_of(of_head), names_of(whole));
}

TEST(Packing, LayoutDependsOnShapesNotValues) {
  const auto layout = [](const EncodedPayload& payload) { return pack_payload(text_of(payload.bytes), "x").layout; };
  auto other = payload_of(sites_of(2, 3), 2);
  other.bytes = other.bytes.clone();
  other.bytes.narrow(0, other.size() - 4, 4).add_(1);
  EXPECT_EQ(layout(other), layout(payload_of(sites_of(2, 3), 2)));
  EXPECT_NE(layout(payload_of(sites_of(2, 3), 3)), layout(payload_of(sites_of(2, 3), 2)));
  EXPECT_NE(layout(payload_of(sites_of(2, 3), 2, TransportDtype::kBFloat16)), layout(payload_of(sites_of(2, 3), 2)));
}

TEST(Packing, NamesOfArraysDependOnlyOnSites) {
  const auto names = [](int64_t rank, TransportDtype dtype) {
    return names_of(pack_payload(text_of(payload_of(sites_of(2, 3), rank, dtype).bytes), "a test"));
  };
  EXPECT_EQ(names(2, TransportDtype::kFloat32), names(5, TransportDtype::kFloat32));
  const auto sorted = [](auto all) { return std::set(all.begin(), all.end()); };
  EXPECT_EQ(sorted(names(2, TransportDtype::kFloat32)), sorted(names(2, TransportDtype::kBFloat16)));
}

TEST(Packing, RejectsBytesThatAreNotAPayload) {
  const auto payload = payload_of(sites_of(2, 3), 2);
  const auto head = pack_payload(text_of(payload.bytes), "a test").head;
  EXPECT_THROW(pack_payload(head.substr(0, head.size() / 2), "a test"), Error);
  EXPECT_THROW(pack_payload("", "a test"), Error);
}

}  // namespace
}  // namespace evenkeel::lora
