#include "models/text_encoder.h"

#include <ATen/ATen.h>

#include <cmath>
#include <functional>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/testing.h"
#include "nn/testing.h"

namespace evenkeel::models {
namespace {

using testing::max_difference;
using testing::random_tensor;
using Sequences = std::vector<std::vector<int64_t>>;

constexpr int64_t kVocabulary = 17, kHidden = 12, kWidth = 10, kLayers = 3, kHeads = 4, kPositions = 14, kPad = 1;
const Sequences kTexts{{0, 5, 9, 16, 2}, {0, 2}, {0, 7, 7, 1, 3, 12, 4, 2}};

Json config_of(std::string_view family) {
  return {{"model_type", family},         {"vocab_size", kVocabulary},
          {"hidden_size", kHidden},       {"intermediate_size", kWidth},
          {"num_hidden_layers", kLayers}, {"num_attention_heads", kHeads},
          {"pad_token_id", kPad},         {"max_position_embeddings", kPositions},
          {"layer_norm_eps", 1e-5},       {"type_vocab_size", 2},
          {"hidden_act", "gelu"},         {"position_embedding_type", "absolute"},
          {"hidden_dropout_prob", 0.1}};
}

/// The tensors of an encoder by their names in the file. No value is zero or one.
class Weights {
 public:
  Weights() {
    put("embeddings.word_embeddings.weight", {kVocabulary, kHidden});
    put("embeddings.position_embeddings.weight", {kPositions, kHidden});
    put("embeddings.token_type_embeddings.weight", {2, kHidden});
    put_affine("embeddings.LayerNorm", {kHidden});
    for (int64_t l = 0; l < kLayers; ++l) {
      const auto layer = concat("encoder.layer.", l, ".");
      for (const auto* name :
           {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"})
        put_affine(layer + name, {kHidden, kHidden});
      put_affine(layer + "attention.output.LayerNorm", {kHidden});
      put_affine(layer + "intermediate.dense", {kWidth, kHidden});
      put_affine(layer + "output.dense", {kHidden, kWidth});
      put_affine(layer + "output.LayerNorm", {kHidden});
    }
  }
  const at::Tensor& at(const std::string& name) const { return all.at(name); }

  TensorMap all;

 private:
  void put(const std::string& name, at::IntArrayRef sizes) {
    all[name] = testing::random_tensor(sizes, 40 + all.size()) * 0.7;
  }
  void put_affine(const std::string& name, at::IntArrayRef sizes) {
    put(name + ".weight", sizes);
    put(name + ".bias", sizes.slice(0, 1));
  }
};

class Encoder : public ::testing::Test {
 protected:
  Encoder() { save("roberta", weights_.all); }

  void save(std::string_view family, const TensorMap& tensors) { save_as(config_of(family), tensors); }
  void save_as(const Json& config, const TensorMap& tensors) {
    write_file_atomic(folder_ / "config.json", config.dump());
    save_safetensors(folder_ / "model.safetensors", tensors);
  }
  at::Tensor hidden(const Sequences& sequences, int64_t layer = kLayers) const {
    return TextEncoder::load(folder_, layer).hidden(sequences);
  }
  void expect_refused(ErrorKind kind, std::string_view part, const std::function<void()>& act) const {
    try {
      act();
      FAIL() << "expected an error that says " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
    }
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  Weights weights_;
};

TEST_F(Encoder, AFloat64MatrixBesideANarrowerEmbeddingIsRefusedByName) {
  const std::string name = "encoder.layer.1.attention.output.dense.weight";
  auto tensors = weights_.all;
  for (auto& [own, tensor] : tensors)
    if (own != name) tensor = tensor.to(at::kFloat);
  save("roberta", tensors);
  expect_refused(kCheckpoint, concat((folder_ / "config.json").string(), ": tensor ", name, " is float64"),
                 [&] { hidden(kTexts); });
  EXPECT_EQ(TextEncoder::load(folder_, kLayers, BaseDtype::kFloat32).hidden(kTexts).scalar_type(), at::kFloat);
}

/// A float64 reference for one sequence.
class Plain {
 public:
  explicit Plain(const Weights& weights) : weights_(weights) {}

  at::Tensor run(const std::vector<int64_t>& ids, const std::vector<int64_t>& positions, int64_t layers) const {
    const auto rows = [](const at::Tensor& table, const std::vector<int64_t>& index) {
      return table.index_select(0, at::tensor(index, at::kLong));
    };
    auto x = rows(weights_.at("embeddings.word_embeddings.weight"), ids) +
             rows(weights_.at("embeddings.position_embeddings.weight"), positions) +
             weights_.at("embeddings.token_type_embeddings.weight")[0];
    x = norm(x, "embeddings.LayerNorm");
    for (int64_t l = 0; l < layers; ++l) x = block(x, concat("encoder.layer.", l, "."));
    return x;
  }

 private:
  at::Tensor affine(const at::Tensor& x, const std::string& name) const {
    return at::mm(x, weights_.at(name + ".weight").t()) + weights_.at(name + ".bias");
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const auto centred = x - x.mean(1, true);
    return centred / (centred.pow(2).mean(1, true) + 1e-5).sqrt() * weights_.at(name + ".weight") +
           weights_.at(name + ".bias");
  }
  at::Tensor block(const at::Tensor& x, const std::string& layer) const {
    const auto q = affine(x, layer + "attention.self.query"), k = affine(x, layer + "attention.self.key"),
               v = affine(x, layer + "attention.self.value");
    std::vector<at::Tensor> heads;
    for (int64_t h = 0; h < kHeads; ++h) {
      const auto part = [&](const at::Tensor& y) {
        return y.slice(1, h * kHidden / kHeads, (h + 1) * kHidden / kHeads);
      };
      heads.push_back(
          at::mm(at::softmax(at::mm(part(q), part(k).t()) / std::sqrt(double{kHidden} / kHeads), 1), part(v)));
    }
    const auto y =
        norm(x + affine(at::cat(heads, 1), layer + "attention.output.dense"), layer + "attention.output.LayerNorm");
    const auto wide = affine(y, layer + "intermediate.dense");
    const auto gelu = wide * 0.5 * (1 + at::erf(wide / std::sqrt(2.0)));
    return norm(y + affine(gelu, layer + "output.dense"), layer + "output.LayerNorm");
  }

  const Weights& weights_;
};

TEST_F(Encoder, RobertaEqualsAFloat64ReferenceAtEveryLayer) {
  // The pad id is 1. Positions begin at 2; a pad token within a sequence has position 1 and is not counted.
  const Sequences positions{{2, 3, 4, 5, 6}, {2, 3}, {2, 3, 4, 1, 5, 6, 7, 8}};
  for (int64_t layer = 0; layer <= kLayers; ++layer) {
    std::vector<at::Tensor> expected;
    for (size_t i = 0; i < kTexts.size(); ++i) expected.push_back(Plain(weights_).run(kTexts[i], positions[i], layer));
    EXPECT_LT(testing::max_difference(hidden(kTexts, layer), at::cat(expected)), 1e-11) << "layer " << layer;
  }
}

TEST_F(Encoder, BertCountsPositionsFromZero) {
  save("bert", weights_.all);
  const auto expected = Plain(weights_).run(kTexts[2], {0, 1, 2, 3, 4, 5, 6, 7}, kLayers);
  EXPECT_LT(testing::max_difference(hidden({kTexts[2]}), expected), 1e-11);
}

TEST_F(Encoder, BatchingDoesNotChangeASequence) {
  const auto all = hidden(kTexts);
  ASSERT_EQ(all.sizes(), at::IntArrayRef({15, kHidden}));
  EXPECT_LT(testing::max_difference(all.slice(0, 5, 7), hidden({kTexts[1]})), 1e-12);
  EXPECT_LT(testing::max_difference(all.slice(0, 0, 5), hidden({kTexts[1], kTexts[0]}).slice(0, 2)), 1e-12);
}

/// Texts of several lengths, some of them equal, not in order of length.
const Sequences kUnequalTexts{{0, 5, 9, 16, 2}, {0, 2},       {0, 7, 7, 1, 3, 12, 4, 2},
                              {0, 4, 8, 15, 2}, {0, 3, 2},    {0, 2},
                              {0, 6, 6, 6, 2},  {0, 1, 1, 2}, {0, 11, 2, 13, 10, 12, 4, 2}};

BaseStorage on_test_device(BaseDtype dtype) {
  BaseStorage storage(dtype);
  storage.engine = nn::EngineKind::kAten;
  storage.device = testing::test_device();
  return storage;
}

TEST_F(Encoder, OperatorsOnTheTestDeviceEqualTheKernels) {
  for (const auto* family : {"roberta", "bert"}) {
    save(family, weights_.all);
    for (int64_t layer = 0; layer <= kLayers; ++layer) {
      const auto expected = hidden(kUnequalTexts, layer);
      for (const auto& [dtype, tolerance] : {std::pair(BaseDtype::kFloat64, 1e-11), {BaseDtype::kFloat32, 1e-5}}) {
        const auto encoder = TextEncoder::load(folder_, layer, on_test_device(dtype));
        const auto states = encoder.hidden(kUnequalTexts);
        EXPECT_EQ(states.device(), testing::test_device());
        EXPECT_LT(testing::apart_by_norm(states, expected), tolerance) << family << ", layer " << layer;
      }
    }
  }
}

TEST_F(Encoder, OperatorsKeepFloat32WithSixteenBitWeightsOnTheTestDevice) {
  TensorMap narrow;
  for (const auto& [name, tensor] : weights_.all) narrow[name] = tensor.to(at::kBFloat16);
  save("roberta", narrow);
  const auto states = TextEncoder::load(folder_, kLayers, on_test_device(BaseDtype::kCheckpoint)).hidden(kTexts);
  EXPECT_EQ(states.scalar_type(), at::kFloat);
  EXPECT_LT(testing::apart_by_norm(states, TextEncoder::load(folder_, kLayers, BaseDtype::kFloat64).hidden(kTexts)),
            1e-5);
}

TEST_F(Encoder, KernelsOnAGpuAreRefused) {
  BaseStorage storage;
  storage.device = c10::Device("cuda:0");
  expect_refused(kConfig, "engine kernels on cuda:0", [&] { TextEncoder::load(folder_, 1, storage); });
}

TEST_F(Encoder, SixteenBitWeightsAreConvertedToFloat32) {
  TensorMap narrow;
  for (const auto& [name, tensor] : weights_.all) narrow[name] = tensor.to(at::kBFloat16);
  save("roberta", narrow);
  const auto states = hidden(kTexts);
  EXPECT_EQ(states.scalar_type(), at::kFloat);
  EXPECT_LT(testing::max_difference(states, TextEncoder::load(folder_, kLayers, BaseDtype::kFloat64).hidden(kTexts)),
            1e-4);
}

TEST_F(Encoder, AcceptsThePrefixAndHeadOfAFineTunedModel) {
  const auto expected = hidden(kTexts);
  TensorMap prefixed{{"lm_head.dense.weight", testing::random_tensor({3, 4}, 1)},
                     {"lm_head.bias", testing::random_tensor({3}, 1)}};
  for (const auto& [name, tensor] : weights_.all) prefixed["roberta." + name] = tensor;
  prefixed["roberta.pooler.dense.weight"] = testing::random_tensor({kHidden, kHidden}, 1);
  prefixed["roberta.embeddings.position_ids"] = at::arange(kPositions, at::kLong).unsqueeze(0);
  save("roberta", prefixed);
  EXPECT_LT(testing::max_difference(hidden(kTexts), expected), 1e-12);
}

TEST_F(Encoder, AcceptsOldNamesOfNorms) {
  const auto expected = hidden(kTexts);
  TensorMap old;
  for (const auto& [name, tensor] : weights_.all) {
    const auto at = name.find("LayerNorm.");
    const bool is_weight = name.ends_with("weight");
    old[at == std::string::npos ? name : name.substr(0, at + 10) + (is_weight ? "gamma" : "beta")] = tensor;
  }
  save("roberta", old);
  EXPECT_LT(testing::max_difference(hidden(kTexts), expected), 1e-12);
}

TEST_F(Encoder, HigherLayersMayBeMissing) {
  const auto expected = hidden(kTexts, 1);
  for (auto it = weights_.all.begin(); it != weights_.all.end();)
    it = it->first.starts_with("encoder.layer.2.") ? weights_.all.erase(it) : std::next(it);
  save("roberta", weights_.all);
  EXPECT_LT(testing::max_difference(hidden(kTexts, 1), expected), 1e-12);
  expect_refused(kCheckpoint, "encoder.layer.2.", [&] { hidden(kTexts); });
}

TEST_F(Encoder, UnknownTensorsAndWrongShapesAreReportedByName) {
  weights_.all["encoder.layer.1.attention.self.gate.weight"] = testing::random_tensor({2}, 1);
  save("roberta", weights_.all);
  expect_refused(kCheckpoint, "encoder.layer.1.attention.self.gate.weight", [&] { hidden(kTexts); });
  weights_.all.erase("encoder.layer.1.attention.self.gate.weight");
  weights_.all["encoder.layer.1.output.dense.bias"] = testing::random_tensor({kWidth}, 1);
  save("roberta", weights_.all);
  expect_refused(kCheckpoint, "encoder.layer.1.output.dense.bias has shape [10], expected [12]",
                 [&] { hidden(kTexts); });
}

TEST_F(Encoder, UnsupportedSettingsAreRefused) {
  auto config = config_of("roberta");
  config["hidden_act"] = "gelu_new";
  save_as(config, weights_.all);
  expect_refused(kCheckpoint, "hidden_act", [&] { hidden(kTexts); });
  save("deberta", weights_.all);
  expect_refused(kCheckpoint, "known encoders: bert, roberta, xlm-roberta", [&] { hidden(kTexts); });
  save("roberta", weights_.all);
  expect_refused(kConfig, "layer 4 is asked for, allowed: 0 .. 3", [&] { hidden(kTexts, 4); });
}

TEST_F(Encoder, LimitsPositionsAndIds) {
  const auto encoder = TextEncoder::load(folder_, 1);
  EXPECT_EQ(encoder.spec().max_tokens, kPositions - 2);
  EXPECT_NO_THROW(encoder.hidden(Sequences{std::vector<int64_t>(12, 3)}));
  expect_refused(kData, "a sequence of 13 tokens", [&] { encoder.hidden(Sequences{std::vector<int64_t>(13, 3)}); });
  expect_refused(kData, "a sequence of 0 tokens", [&] { encoder.hidden(Sequences{{3}, {}}); });
  expect_refused(kData, "17 entries", [&] { encoder.hidden(Sequences{{3, 17}}); });
}

}  // namespace
}  // namespace evenkeel::models
