// That the path of a call reaches every product with the base. Weights below 2^18 elements are widened on either path,
// so the sizes here choose whose products can differ.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "models/testing.h"

namespace evenkeel {
namespace {

const ForwardOptions kWidened{.matmul = MatmulPath::kWiden}, kNative{.matmul = MatmulPath::kNative};

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

TEST(MatmulPaths, OfACallReachTheFeedForwardBlocks) {
  const c10::NoGradGuard no_grad;
  for (const std::string_view family : {"olmoe", "olmo"}) {
    const auto model = model_of(family, 1030, 11);
    const auto batch = pack_ids(testing::kSequences);
    const auto widened = model->hidden(batch, kWidened), native = model->hidden(batch, kNative);
    EXPECT_GT(apart(native, widened), 0) << family;
    EXPECT_LT(apart(native, widened), 0.05) << family;
    EXPECT_TRUE(at::equal(model->hidden(batch, {}), widened)) << family;
  }
}

TEST(MatmulPaths, OfACallReachTheHead) {
  const c10::NoGradGuard no_grad;
  const auto model = model_of("olmo", 7, 1030);
  const auto batch = pack_ids(testing::kSequences);
  const auto hidden = model->hidden(batch, kWidened);
  ASSERT_TRUE(at::equal(model->hidden(batch, kNative), hidden)) << "nothing but the head is large here";
  EXPECT_GT(apart(model->logits(hidden, kNative), model->logits(hidden, kWidened)), 0);
  const auto widened = model->loss(batch, kWidened).sum, native = model->loss(batch, kNative).sum;
  EXPECT_NE(native.item<double>(), widened.item<double>());
  EXPECT_NEAR(native.item<double>(), widened.item<double>(), 0.02 * widened.item<double>());
}

}  // namespace
}  // namespace evenkeel
