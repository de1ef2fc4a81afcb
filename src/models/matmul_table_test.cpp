// Tests that the kernels of a call are used for every product with the base. Weights below 2^18 elements never use a
// kernel that rounds activations, so the sizes determine which products can differ.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <array>

#include "models/testing.h"

namespace evenkeel::models {
namespace {

const ForwardOptions kOwn{.compute = {.products = nn::MatmulKernel::kFp32Exact}};
const std::array kRounding{ForwardOptions{.compute = {.products = nn::MatmulKernel::kBf16Vendor}},
                           ForwardOptions{.compute = {.products = nn::MatmulKernel::kBf16Dot}},
                           ForwardOptions{.compute = {.products = nn::MatmulKernel::kBf16Tile}}};

std::unique_ptr<CausalLm> model_of(std::string_view family, int64_t width, int64_t vocabulary) {
  return testing::make_model(family, BaseDtype::kBFloat16,
                             {{"hidden_size", 256},
                              {"num_attention_heads", 8},
                              {"intermediate_size", width},
                              {"vocab_size", vocabulary},
                              {"num_hidden_layers", 1},
                              {"initializer_range", 0.05},
                              {"tie_word_embeddings", false}});
}

double apart(const at::Tensor& x, const at::Tensor& y) { return ((x - y).norm() / y.norm()).item<double>(); }

TEST(MatmulTables, ApplyToFeedForwardBlocks) {
  const c10::NoGradGuard no_grad;
  for (const std::string_view family : {"olmoe", "olmo"}) {
    const auto model = model_of(family, 1030, 11);
    const auto batch = data::pack_ids(testing::kSequences);
    const auto own = model->hidden(batch, kOwn);
    for (const auto& options : kRounding) {
      const auto rounded = model->hidden(batch, options);
      EXPECT_GT(apart(rounded, own), 0) << family;
      EXPECT_LT(apart(rounded, own), 0.05) << family;
    }
    EXPECT_TRUE(at::equal(model->hidden(batch, {}), own)) << family;
  }
}

TEST(MatmulTables, ApplyToTheHead) {
  const c10::NoGradGuard no_grad;
  const auto model = model_of("olmo", 7, 1030);
  const auto batch = data::pack_ids(testing::kSequences);
  const auto hidden = model->hidden(batch, kOwn);
  for (const auto& options : kRounding) {
    ASSERT_TRUE(at::equal(model->hidden(batch, options), hidden)) << "nothing but the head is large here";
    EXPECT_GT(apart(model->logits(hidden, options), model->logits(hidden, kOwn)), 0);
    const auto own = model->loss(batch, kOwn).sum, rounded = model->loss(batch, options).sum;
    EXPECT_NE(rounded.item<double>(), own.item<double>());
    EXPECT_NEAR(rounded.item<double>(), own.item<double>(), 0.02 * own.item<double>());
  }
}

}  // namespace
}  // namespace evenkeel::models
