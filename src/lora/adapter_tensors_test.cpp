#include "lora/adapter_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace evenkeel::lora {
namespace {

const std::string kSite = "model.layers.0.mlp.experts.up_proj";

TEST(AdapterTensors, DefinedTensorsAreNamedAndFoundByName) {
  const LoraFactors factors{
      .a = at::ones({5, 3, 7}), .b = at::ones({5, 11, 3}), .ranks = at::tensor({3, 1, 0, 2, 3}, at::kLong)};
  TensorMap named;
  add_factors("x/" + kSite, factors, [&](std::string name, const at::Tensor& t) { named.emplace(std::move(name), t); });
  ASSERT_EQ(named.size(), 3u);
  AdapterState read;
  for (const auto& [name, tensor] : named) EXPECT_TRUE(insert_factor(read, name.substr(2), tensor)) << name;
  const auto& again = read.at(kSite);
  EXPECT_TRUE(again.a.is_same(factors.a) && again.b.is_same(factors.b) && again.ranks.is_same(factors.ranks));
  EXPECT_FALSE(again.core.defined());
}

TEST(AdapterTensors, ATensorThatIsNoFactorIsNotFound) {
  AdapterState read;
  for (const auto* name : {"a", "", "/", "s/", "s/c", "s/scaling", "s/a/x", "s/ranks "})
    EXPECT_FALSE(insert_factor(read, name, at::ones({2}))) << name;
  EXPECT_TRUE(read.empty());
}

}  // namespace
}  // namespace evenkeel::lora
