#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/plain/error.h"
#include "lora/modules.h"
#include "lora/peft.h"
#include "models/causal_lm.h"
#include "models/testing.h"
#include "nn/moe/balance_losses.h"

namespace evenkeel {
namespace {

using testing::expect_gradients_match;
using testing::kSequences;
using testing::make_model;
using testing::max_difference;
using testing::random_adapters;

/// Checks what every registered family must provide (docs/tutorial-new-family.md), including those of other programs.
class Family : public ::testing::TestWithParam<std::string_view> {};

std::vector<std::string_view> families() {
  std::vector<std::string_view> names;
  for (const auto& entry : models::model_families()) names.push_back(entry.family);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Family, ::testing::ValuesIn(families()),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Family, PackedSequencesEqualSingleSequences) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat64, {{"clip_qkv", 0.5}});
  const auto adapters = testing::random_adapters(*model, 2, at::kDouble);
  models::ForwardOptions options;
  options.adapters = &adapters;
  const auto packed = model->hidden(data::pack_ids(testing::kSequences), options);
  int64_t start = 0;
  for (const auto& sequence : testing::kSequences) {
    const auto alone = model->hidden(data::pack_ids(std::vector<std::vector<int64_t>>{sequence}), options);
    EXPECT_LT(testing::max_difference(packed.narrow(0, start, alone.size(0)), alone), 1e-12);
    start += alone.size(0);
  }
}

nn::KvCache cache_of(const models::CausalLm& model, const std::vector<std::vector<int64_t>>& sequences) {
  const auto& spec = model.spec();
  nn::KvCache cache({spec.num_layers, spec.num_kv_heads, spec.head_width, at::kDouble});
  cache.sequences.resize(sequences.size());
  for (size_t b = 0; b < sequences.size(); ++b) cache.open(b, static_cast<int64_t>(sequences[b].size()));
  return cache;
}

TEST_P(Family, GenerationWithACacheEqualsTheWholeSequence) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat64);
  const auto whole = model->hidden(data::pack_ids(testing::kSequences), {});
  auto cache = cache_of(*model, testing::kSequences);
  models::ForwardOptions options;
  options.cache = &cache;
  std::vector<std::vector<int64_t>> prompts;
  for (const auto& sequence : testing::kSequences) prompts.emplace_back(sequence.begin(), sequence.begin() + 1);
  model->hidden(data::pack_ids(prompts), options);
  EXPECT_EQ(cache.lengths(), std::vector<int64_t>({1, 1, 1}));
  cache.select(std::vector<int64_t>{2, 0});
  auto tail = data::pack_ids(std::vector<std::vector<int64_t>>{{5, 0, 8}, {4, 9, 2, 10, 3}});
  tail.positions.add_(1);
  const auto out = model->hidden(tail, options);
  EXPECT_LT(testing::max_difference(out, at::cat({whole.slice(0, 8, 11), whole.slice(0, 1, 6)})), 1e-12);
  EXPECT_EQ(cache.lengths(), std::vector<int64_t>({4, 6}));
}

TEST_P(Family, LastRowsOnlyEqualTheLastRowsOfAFullPass) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat64);
  const auto whole = model->hidden(data::pack_ids(testing::kSequences), {});
  auto cache = cache_of(*model, testing::kSequences);
  models::ForwardOptions options;
  options.cache = &cache;
  options.last_only = true;
  const auto last = model->hidden(data::pack_ids(testing::kSequences), options);
  EXPECT_LT(testing::max_difference(last, at::stack({whole[5], whole[6], whole[10]})), 1e-12);
  EXPECT_EQ(cache.lengths(), std::vector<int64_t>({6, 1, 4}));
}

TEST_P(Family, AdapterGradientsOfTheWholeModelMatchCentralDifferences) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat64, {{"clip_qkv", 2.0}});
  const auto base = testing::random_adapters(*model, 2, at::kDouble);
  const data::PackedBatch batch = data::pack_ids(testing::kSequences);
  for (const auto& [site, factors] : base)
    testing::expect_gradients_match(
        [&](const std::vector<at::Tensor>& in) {
          auto adapters = base;
          adapters.at(site).a = in[0];
          adapters.at(site).b = in[1];
          models::ForwardOptions options;
          options.adapters = &adapters;
          return model->loss(batch, options).sum;
        },
        {factors.a, factors.b}, 1e-5);
}

/// Returns sequences with a common prefix, and one without it.
std::vector<data::Example> alike() {
  return {{.ids = {3, 1, 4, 1, 5, 9}, .first_target = 3},
          {.ids = {2, 7, 1}},
          {.ids = {3, 1, 4, 1, 5, 2, 6}, .first_target = 4},
          {.ids = {3, 1, 4, 8, 8}, .first_target = 2},
          {.ids = {3, 1, 4, 1, 5, 9}, .first_target = 3}};
}

struct Passed {
  nn::LossSum loss;
  nn::RoutingByLayer routing;
  std::vector<at::Tensor> gradients;
};

Passed passed(const models::CausalLm& model, const lora::AdapterState& adapters, const data::PackedBatch& batch) {
  lora::AdapterState separate = adapters;
  std::vector<at::Tensor> leaves;
  for (auto& [site, factors] : separate)
    for (auto* tensor : {&factors.a, &factors.b})
      leaves.push_back(tensor->detach().clone().requires_grad_(true)), *tensor = leaves.back();
  Passed result;
  result.loss = model.loss(batch, {.adapters = &separate, .routing = {&result.routing, 1}});
  auto total = result.loss.sum;
  if (!result.routing.empty())
    total = total + nn::load_balance_loss(result.routing) + nn::pooled_load_balance_loss(result.routing) +
            nn::router_z_loss(result.routing);
  result.gradients = torch::autograd::grad({total}, leaves);
  return result;
}

TEST_P(Family, PrefixSharingDoesNotChangeResults) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat64);
  const auto adapters = testing::random_adapters(*model, 2, at::kDouble);
  const auto examples = alike();
  const auto shared_batch = data::pack_shared(examples);
  ASSERT_LT(shared_batch.ids.size(0), shared_batch.tokens());
  const auto shared = passed(*model, adapters, shared_batch), separate = passed(*model, adapters, data::pack(examples));
  EXPECT_EQ(shared.loss.count, separate.loss.count);
  EXPECT_NEAR(shared.loss.sum.item<double>(), separate.loss.sum.item<double>(), 1e-11);
  for (const auto& [layer, stats] : separate.routing) {
    const auto& ours = shared.routing.at(layer);
    EXPECT_EQ(ours.tokens, stats.tokens) << layer;
    EXPECT_TRUE(at::equal(ours.counts, stats.counts)) << layer;
    EXPECT_LT(testing::max_difference(ours.router_logits, stats.router_logits), 1e-12) << layer;
  }
  for (size_t i = 0; i < separate.gradients.size(); ++i)
    EXPECT_LT(testing::max_difference(shared.gradients[i], separate.gradients[i]), 1e-11) << i;
}

at::Tensor with_balance(const nn::LossSum& loss, const nn::RoutingByLayer& routing) {
  const auto mean = loss.sum / static_cast<double>(loss.count);
  return routing.empty() ? mean : mean + nn::load_balance_loss(routing) + nn::router_z_loss(routing);
}

TEST_P(Family, MicroBatchesInOnePassEqualSinglePasses) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat64);
  auto adapters = testing::random_adapters(*model, 2, at::kDouble);
  std::vector<at::Tensor> leaves;
  for (auto& [site, factors] : adapters)
    for (auto* tensor : {&factors.a, &factors.b}) leaves.push_back(tensor->requires_grad_(true));
  auto examples = alike();
  examples.push_back({.ids = {3, 1, 4, 1}, .first_target = 2});
  const auto together = data::pack_shared(examples, 2);
  ASSERT_LT(together.ids.size(0), together.tokens());
  std::array<nn::RoutingByLayer, 3> routing;
  const auto losses = model->losses(together, {.adapters = &adapters, .routing = routing});
  at::Tensor total = at::zeros({}, at::kDouble), expected = total;
  for (size_t i = 0; i < 3; ++i) {
    nn::RoutingByLayer separate;
    const auto loss = model->loss(data::pack(std::span(examples).subspan(2 * i, 2)),
                                  {.adapters = &adapters, .routing = {&separate, 1}});
    EXPECT_EQ(losses[i].count, loss.count);
    EXPECT_NEAR(losses[i].sum.item<double>(), loss.sum.item<double>(), 1e-11);
    EXPECT_EQ(routing[i].size(), separate.size());
    for (const auto& [layer, stats] : separate) {
      EXPECT_EQ(routing[i].at(layer).tokens, stats.tokens);
      EXPECT_TRUE(at::equal(routing[i].at(layer).counts, stats.counts)) << layer;
    }
    total = total + with_balance(losses[i], routing[i]);
    expected = expected + with_balance(loss, separate);
  }
  const auto ours = torch::autograd::grad({total}, leaves), theirs = torch::autograd::grad({expected}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) EXPECT_LT(testing::max_difference(ours[i], theirs[i]), 1e-11) << i;
}

TEST_P(Family, RejectsRoutingForAnotherNumberOfMicroBatches) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat32);
  std::array<nn::RoutingByLayer, 2> routing;
  EXPECT_THROW(model->hidden(data::pack(alike()), {.routing = routing}), Error);
}

TEST_P(Family, TheBaseGetsAGradientOnlyIfRequested) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat32);
  auto adapters = testing::random_adapters(*model, 2, at::kFloat);
  for (auto& [name, lora] : adapters) {
    lora.a.requires_grad_(true);
    lora.b.requires_grad_(true);
  }
  models::ForwardOptions options;
  options.adapters = &adapters;
  options.router.top_k = 2;
  model->loss(data::pack_ids(testing::kSequences), options).sum.backward();
  for (const auto& [name, tensor] : model->parameters()) EXPECT_FALSE(tensor.grad().defined()) << name;
  for (const auto& [name, lora] : adapters) EXPECT_TRUE(lora.a.grad().defined() && lora.b.grad().defined()) << name;
}

TEST_P(Family, EverySiteHasItsOwnTensorInLlamaCpp) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat32);
  std::set<std::string> tensors;
  if (model->spec().gguf.architecture.empty()) return;
  for (const auto& [name, site] : model->all_sites()) EXPECT_TRUE(tensors.insert(site.gguf.tensor).second) << name;
  EXPECT_FALSE(tensors.contains(""));
}

TEST_P(Family, EveryBaseTensorGetsAGradientInPreTraining) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat64, {{"tie_word_embeddings", true}});
  auto parameters = model->parameters();
  for (auto& [name, tensor] : parameters) tensor.requires_grad_(true);
  const data::PackedBatch batch = data::pack_ids(testing::kSequences);
  const auto value = [&] { return model->loss(batch, {}).sum; };
  value().backward();
  for (auto& [name, tensor] : parameters) {
    ASSERT_TRUE(tensor.grad().defined()) << name;
    double* element = tensor.mutable_data_ptr<double>() + tensor.numel() / 3;
    const double original = *element;
    *element = original + 1e-5;
    const double above = value().item<double>();
    *element = original - 1e-5;
    const double below = value().item<double>();
    *element = original;
    const double numeric = (above - below) / 2e-5;
    EXPECT_NEAR(tensor.grad().flatten()[tensor.numel() / 3].item<double>(), numeric, 1e-5 * (1 + std::abs(numeric)))
        << name;
  }
}

TEST_P(Family, SitesHaveARoleAndNameTheWeightsTheyAdapt) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat32);
  const auto weights = model->parameters();
  std::set<std::string> adapted;
  for (const auto& [name, site] : model->all_sites()) {
    ASSERT_EQ(site.modules.size(), static_cast<size_t>(std::max<int64_t>(1, site.experts))) << name;
    EXPECT_EQ(site.role == lora::SiteRole::kExpert, site.experts > 0) << name;
    EXPECT_EQ(site.moe_layer.empty(), site.experts == 0) << name;
    for (const auto& module : site.modules) {
      ASSERT_TRUE(weights.contains(module + ".weight")) << name << " of " << module;
      EXPECT_EQ(weights.at(module + ".weight").sizes(), at::IntArrayRef({site.out, site.in})) << module;
      EXPECT_TRUE(adapted.insert(module).second) << module << " belongs to two sites";
    }
  }
  const bool sparse = testing::entry_of(GetParam()).has_experts;
  EXPECT_EQ(sparse, model->spec().num_experts > 0);
  EXPECT_EQ(sparse, !model->spec().moe_layers.empty());
}

/// The multiply-adds are counted from the model's parameters.
TEST_P(Family, ForwardCostEqualsTheCountOfItsWeights) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat32, {{"tie_word_embeddings", false}});
  std::map<std::string, lora::SitePart, std::less<>> parts = lora::parts_by_module(model->all_sites());
  double experts = 0, others = 0;
  for (const auto& [name, tensor] : model->parameters()) {
    if (tensor.dim() < 2 || name == "model.embed_tokens.weight") continue;
    const auto part = parts.find(name.substr(0, name.rfind('.')));
    const bool of_expert = part != parts.end() && part->second.expert >= 0;
    (of_expert ? experts : others) += static_cast<double>(tensor.numel());
  }
  const auto& spec = model->spec();
  if (spec.num_experts > 0) experts /= static_cast<double>(spec.num_experts);
  EXPECT_EQ(spec.work.experts, experts);
  EXPECT_EQ(spec.work.attention + spec.work.router + spec.work.mlp + spec.work.head, others);
}

TEST_P(Family, AnAdapterOfAllSitesRoundTrips) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat32);
  const testing::TemporaryFolder folder;
  const auto adapters = testing::random_adapters(*model, 2, at::kFloat);
  for (const auto layout : {lora::PeftLayout::kPerExpert, lora::PeftLayout::kFused}) {
    lora::save_peft_adapter(folder.path(), adapters, model->all_sites(), {"a model", layout});
    const auto loaded = lora::load_peft_adapter(folder.path(), model->all_sites());
    ASSERT_EQ(loaded.size(), adapters.size());
    for (const auto& [site, factors] : adapters) EXPECT_TRUE(at::equal(loaded.at(site).b, factors.b)) << site;
  }
}

TEST_P(Family, RejectsInvalidInput) {
  const auto model = testing::make_model(GetParam(), models::BaseDtype::kFloat32);
  EXPECT_THROW(model->hidden(data::pack_ids(std::vector<std::vector<int64_t>>{{11}}), {}), Error);
  EXPECT_THROW(model->hidden(data::pack_ids(std::vector<std::vector<int64_t>>{std::vector<int64_t>(33, 1)}), {}),
               Error);
  lora::AdapterState stray{{"model.layers.2.mlp.gate", {at::zeros({1, 12}), at::zeros({6, 1}), {}, 1}}};
  models::ForwardOptions options;
  options.adapters = &stray;
  EXPECT_THROW(model->hidden(data::pack_ids(testing::kSequences), options), Error);
}

}  // namespace
}  // namespace evenkeel
