// Measures the error of an int8 base on the built-in model. docs/results.md has the figures.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "data/builtin_text.h"
#include "data/prompt.h"
#include "data/tasks.h"
#include "models/causal_lm.h"
#include "nn/testing.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::train {
namespace {

const std::string kBuiltin = "builtin:tiny-olmoe";

std::unique_ptr<models::CausalLm> builtin(models::BaseFormat format) {
  models::BaseStorage storage;
  storage.format = format;
  return models::load_model(models::resolve_model_path(kBuiltin), storage);
}

double mean_loss(const models::CausalLm& model, const data::PackedBatch& batch, int64_t top_k) {
  const c10::NoGradGuard no_grad;
  models::ForwardOptions options;
  options.router.top_k = top_k;
  const auto loss = model.loss(batch, options);
  return loss.sum.item<double>() / static_cast<double>(loss.count);
}

data::PackedBatch prose(const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::vector<int64_t>> texts;
  for (const auto& document : data::builtin_documents(8, 977)) texts.push_back(tokenizer.encode(document));
  return data::pack_ids(texts);
}

// Returns the LoRA gradients of all factors, concatenated.
at::Tensor gradient(const models::CausalLm& model, const data::PackedBatch& batch) {
  const std::vector<std::string> targets{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  auto adapters = lora::make_adapters(model.sites(targets), 4, 1.0, 3);
  for (auto& [name, factors] : adapters) {
    factors.b = testing::random_tensor(factors.b.sizes(), 5, at::kFloat).mul_(0.01);
    factors.a.requires_grad_(true);
    factors.b.requires_grad_(true);
  }
  const auto loss = model.loss(batch, {.adapters = &adapters});
  (loss.sum / static_cast<double>(loss.count)).backward();
  std::vector<at::Tensor> all;
  for (const auto& [name, factors] : adapters)
    for (const auto& factor : {factors.a, factors.b}) all.push_back(factor.grad().flatten());
  return at::cat(all).to(at::kDouble);
}

TEST(Int8Base, CostsLittleOfThePerplexityOfTheBuiltInModel) {
  const auto tokenizer = tokenizer::Tokenizer::of_model(models::resolve_model_path(kBuiltin));
  const auto stored = builtin(models::BaseFormat::kStored), int8 = builtin(models::BaseFormat::kInt8);
  const auto batch = prose(tokenizer);
  for (const int64_t top_k : {1, 8}) {
    const double exact = mean_loss(*stored, batch, top_k), rounded = mean_loss(*int8, batch, top_k);
    RecordProperty(concat("perplexity_ratio_k", top_k), std::to_string(std::exp(rounded - exact)));
    EXPECT_NE(rounded, exact);
    EXPECT_LT(std::abs(std::exp(rounded - exact) - 1), 0.01) << "top_k " << top_k;
  }
}

TEST(Int8Base, LeavesGradientsOfAdaptersTheirDirection) {
  const auto tokenizer = tokenizer::Tokenizer::of_model(models::resolve_model_path(kBuiltin));
  const auto examples =
      data::tokenize_rows(data::training_rows("builtin", {.limit = 6}).rows, tokenizer, data::TokenizeOptions{})
          .examples;
  const auto batch = data::pack(std::span<const data::Example>(examples));
  const auto exact = gradient(*builtin(models::BaseFormat::kStored), batch),
             rounded = gradient(*builtin(models::BaseFormat::kInt8), batch);
  const double cosine = (exact.dot(rounded) / (exact.norm() * rounded.norm())).item<double>();
  RecordProperty("gradient_cosine", std::to_string(cosine));
  EXPECT_GT(cosine, 0.99);
  EXPECT_LT(cosine, 1.0);
}

}  // namespace
}  // namespace evenkeel::train
