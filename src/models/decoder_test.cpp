#include "models/decoder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/testing.h"
#include "models/testing.h"

namespace evenkeel::models {
namespace {

const Json kFiveLayers{{"model_type", "made_up"},  {"vocab_size", 11},       {"hidden_size", 12},
                       {"intermediate_size", 7},   {"num_hidden_layers", 5}, {"num_attention_heads", 6},
                       {"num_key_value_heads", 2}, {"num_experts", 4},       {"num_experts_per_tok", 2}};

ModelConfig five_layers() { return ModelConfig::load(testing::TemporaryFile(kFiveLayers.dump()).path()); }

/// Returns a model with a changed description.
std::unique_ptr<CausalLm> changed(const std::function<void(DecoderSpec& spec)>& change) {
  const auto config = five_layers();
  auto spec = read_decoder(config);
  spec.feed_forward = in_every_layer(read_mixture(config));
  change(spec);
  return make_decoder(spec, config, *random_source(0.4, BaseDtype::kFloat32, 3));
}

using testing::refusal;

TEST(Decoder, WithoutOptionsHasOnlyTheStandardTensors) {
  const auto model = changed([](DecoderSpec&) {});
  const auto weights = model->parameters();
  EXPECT_EQ(weights.size(), 3u + 5 * (2 + 4 + 1 + 4 * 3));
  EXPECT_FALSE(weights.contains("model.layers.0.self_attn.q_norm.weight"));
  EXPECT_EQ(model->hidden(data::pack_ids(testing::kSequences), {}).sizes(), at::IntArrayRef({11, 12}));
}

TEST(Decoder, OptionsAddBiases) {
  const auto plain = changed([](DecoderSpec&) {});
  const auto biased = changed([](DecoderSpec& spec) { spec.attention.qkv_bias = true; });
  auto weights = biased->parameters();
  EXPECT_EQ(weights.size(), plain->parameters().size() + 5 * 3);
  const auto batch = data::pack_ids(testing::kSequences);
  EXPECT_TRUE(at::equal(biased->hidden(batch, {}), plain->hidden(batch, {})));  // biases are initialised to zero
  weights.at("model.layers.2.self_attn.v_proj.bias").fill_(0.5);
  EXPECT_FALSE(at::allclose(biased->hidden(batch, {}), plain->hidden(batch, {})));
}

TEST(Decoder, ASharedExpertIsADenseBlockAddedToTheRoutedOnes) {
  const auto model = changed([](DecoderSpec& spec) {
    auto mixture = std::get<MixtureSpec>(spec.feed_forward(0));
    mixture.shared = SharedExpert{.width = 9, .gated = true};
    spec.feed_forward = in_every_layer(mixture);
  });
  const auto& up = model->all_sites().at("model.layers.3.mlp.shared_expert.up_proj");
  EXPECT_EQ(up.role, lora::SiteRole::kMlp);
  EXPECT_EQ(up.out, 9);
  EXPECT_EQ(model->parameters().at("model.layers.3.mlp.shared_expert_gate.weight").sizes(), at::IntArrayRef({1, 12}));
  EXPECT_FALSE(model->all_sites().contains("model.layers.3.mlp.shared_expert_gate"));
  EXPECT_EQ(model->spec().work.mlp, 5.0 * (3 * 12 * 9 + 12));
  EXPECT_EQ(model->spec().work.experts, 5.0 * 3 * 12 * 7);
}

TEST(Decoder, UnknownActivationsOfExpertsAreReportedByName) {
  const auto said = testing::refusal([] {
    changed([](DecoderSpec& spec) {
      auto mixture = std::get<MixtureSpec>(spec.feed_forward(0));
      mixture.activation = Activation::kGelu;
      spec.feed_forward = in_every_layer(mixture);
    });
  });
  EXPECT_EQ(said, "[config] family made_up: experts with activation gelu, supported: silu");
}

TEST(Decoder, InconsistentMixturesAreInternalErrors) {
  const auto said = testing::refusal([] {
    changed([](DecoderSpec& spec) {
      const auto mixture = std::get<MixtureSpec>(spec.feed_forward(0));
      spec.feed_forward = [mixture](int64_t layer) -> FeedForwardSpec {
        auto own = mixture;
        own.experts += layer;
        return own;
      };
    });
  });
  EXPECT_NE(said.find("model.layers.1.mlp has 5 experts"), std::string::npos) << said;
}

TEST(Families, AddedFamiliesNeedAUniqueNameAndAFactory) {
  ModelEntry entry{.family = "olmoe", .has_experts = true, .source = "here", .example = "{}"};
  EXPECT_NE(testing::refusal([&] { add_family(entry); }).find("olmoe has no make"), std::string::npos);
  entry.make = model_families()[0].make;
  EXPECT_EQ(testing::refusal([&] { add_family(entry); }), "[config] family olmoe is in the table already");
}

}  // namespace
}  // namespace evenkeel::models
