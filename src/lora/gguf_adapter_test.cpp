#include "lora/gguf_adapter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/format/gguf.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel::lora {
namespace {

const std::string kGgufHeads = "model.layers.0.self_attn.k_proj", kGgufStack = "model.layers.0.mlp.experts.up_proj";
const Sites kGgufSites = {
    {kGgufHeads, {.in = 5, .out = 8, .gguf = {.tensor = "blk.0.attn_k.weight", .interleaved_heads = 2}}},
    {kGgufStack, {.experts = 3, .in = 5, .out = 4, .gguf = {.tensor = "blk.0.ffn_up_exps.weight"}}}};

AdapterState gguf_adapters() {
  auto adapters = make_adapters(kGgufSites, 2, 1.5, 7);
  for (auto& [name, f] : adapters) f.b = at::arange(f.b.numel(), at::kFloat).view(f.b.sizes());
  return adapters;
}

class GgufAdapter : public ::testing::Test {
 protected:
  std::string written(const AdapterState& adapters, const Sites& sites = kGgufSites) const {
    save_gguf_adapter(file_, adapters, sites, "olmoe");
    return read_file(file_);
  }
  /// Returns the values of the last tensor of the file.
  static at::Tensor last(const std::string& bytes, at::IntArrayRef sizes) {
    auto tensor = at::empty(sizes, at::kFloat);
    const size_t size = tensor.nbytes(), end = bytes.size() - (32 - size % 32) % 32;
    std::memcpy(tensor.mutable_data_ptr(), bytes.data() + end - size, size);
    return tensor;
  }

  const testing::TemporaryFolder temporary_;
  const fs::path file_ = temporary_.path() / "adapter.gguf";
};

TEST_F(GgufAdapter, FileWithOneKeyAndOneTensorMatchesTheSpecification) {
  save_gguf(file_, {{"k", "v"}}, {{"t", at::tensor({1.0F, 2.0F, 3.0F}).view({3, 1})}});
  const auto bytes = read_file(file_);
  const std::string head(
      "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
      "\1\0\0\0\0\0\0\0k\10\0\0\0\1\0\0\0\0\0\0\0v"
      "\1\0\0\0\0\0\0\0t\2\0\0\0\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
      24 + 22 + 41);
  EXPECT_EQ(bytes.substr(0, head.size()), head);
  EXPECT_EQ(bytes.size(), 96u + 32u);
  EXPECT_TRUE(at::equal(last(bytes, {3}), at::tensor({1.0F, 2.0F, 3.0F})));
}

TEST_F(GgufAdapter, FactorsWithACommonAlphaAreWrittenUnchanged) {
  const auto bytes = written(gguf_adapters());
  EXPECT_NE(bytes.find("blk.0.attn_k.weight.lora_a"), std::string::npos);
  EXPECT_TRUE(at::equal(last(bytes, {3, 4, 2}), gguf_adapters().at(kGgufStack).b));
}

TEST_F(GgufAdapter, ADifferentScalingIsMultipliedIntoB) {
  auto adapters = gguf_adapters();
  adapters.at(kGgufStack).scaling = 4.5;  // the file's alpha is that of kGgufStack, which is the first by name
  Sites sites = kGgufSites;
  sites.at(kGgufHeads).gguf = {.tensor = "blk.1.last.weight"};
  EXPECT_TRUE(at::allclose(last(written(adapters, sites), {8, 2}), adapters.at(kGgufHeads).b / 3));
}

TEST_F(GgufAdapter, ASiteWithoutRankOrScalingIsLeftOut) {
  const auto whole = gguf_adapters();
  const AdapterState alone{{kGgufHeads, whole.at(kGgufHeads)}};
  auto adapters = whole;
  adapters.at(kGgufStack).scaling = 0;  // the first by name
  EXPECT_EQ(written(adapters), written(alone));
  adapters.at(kGgufStack) = {.a = at::empty({3, 0, 5}), .b = at::empty({3, 4, 0}), .scaling = 2};
  EXPECT_EQ(written(adapters), written(alone));
}

TEST_F(GgufAdapter, RejectsAnAdapterThatChangesNothing) {
  auto adapters = gguf_adapters();
  for (auto& [site, factors] : adapters) factors.scaling = 0;
  EXPECT_EQ(testing::refusal([&] { written(adapters); }).find("[config] the adapter changes nothing"), 0u);
  EXPECT_FALSE(path_exists(file_));
}

TEST_F(GgufAdapter, RowsOfHeadsAreInterleavedForRotaryPairs) {
  auto adapters = gguf_adapters();
  adapters.erase(kGgufStack);
  EXPECT_TRUE(at::equal(last(written(adapters), {8, 2}).select(1, 0) / 2,
                        at::tensor({0.0F, 2.0F, 1.0F, 3.0F, 4.0F, 6.0F, 5.0F, 7.0F})));
}

TEST_F(GgufAdapter, RejectsValuesBeyondFloat32AndLeavesNoFile) {
  auto adapters = gguf_adapters();
  adapters.at(kGgufHeads).scaling = 1e300;
  EXPECT_NE(testing::refusal([&] { written(adapters); }).find(".lora_b holds a value that is not finite"),
            std::string::npos);
  for (auto& [site, factors] : adapters) factors.scaling = 1e-60;
  EXPECT_NE(testing::refusal([&] { written(adapters); }).find("alpha is "), std::string::npos);
  EXPECT_FALSE(path_exists(file_));
}

TEST_F(GgufAdapter, RejectsASiteUnknownToLlamaCpp) {
  Sites sites = kGgufSites;
  sites.at(kGgufHeads).gguf = {};
  EXPECT_THROW(
      {
        try {
          written(gguf_adapters(), sites);
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find(kGgufHeads), std::string::npos);
          throw;
        }
      },
      Error);
  EXPECT_FALSE(path_exists(file_));
}

}  // namespace
}  // namespace evenkeel::lora
