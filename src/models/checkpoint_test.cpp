#include "models/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>
#include <tuple>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/random/random.h"
#include "base/testing.h"

namespace evenkeel::models {
namespace {

constexpr std::string_view kConfig4 = R"({
  "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "vocab_size": 11, "hidden_size": 12,
  "intermediate_size": 7, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
  "num_experts": 5, "num_experts_per_tok": 2, "max_position_embeddings": 32, "rope_theta": 500.0,
  "rope_scaling": null, "clip_qkv": null, "hidden_act": "silu", "attention_bias": false, "eos_token_id": 3,
  "pad_token_id": 1, "initializer_range": 0.1, "tie_word_embeddings": false, "torch_dtype": "float32"
})";

class Checkpoint : public ::testing::Test {
 protected:
  Checkpoint() { write_config(Json::parse(kConfig4)); }

  void write_config(const Json& config) { write_file_atomic(root_ / "config.json", config.dump()); }
  void edit_config(const std::string& key, const Json& value) {
    auto config = load_json(root_ / "config.json");
    config[key] = value;
    write_config(config);
  }
  /// A folder with a random model in it, whose tensors a test may spoil.
  fs::path saved(BaseDtype dtype = BaseDtype::kFloat32, int64_t shard_bytes = int64_t{1} << 40) {
    const auto folder = root_ / "model";
    save_model(*init_model(root_ / "config.json", BaseDtype::kFloat32, 1), folder, dtype, shard_bytes);
    return folder;
  }
  static void respoil(const fs::path& folder, const std::function<void(TensorMap&)>& spoil) {
    TensorMap copy;
    for (const auto& [name, tensor] : load_safetensors(folder / "model.safetensors").tensors)
      copy[name] = tensor.clone();
    spoil(copy);
    save_safetensors(folder / "model.safetensors", copy);
  }
  /// A whole model whose config.json says something else.
  fs::path saved_with(const std::string& key, const Json& value) {
    fs::remove_all(root_ / "model");
    write_config(Json::parse(kConfig4));
    const auto folder = saved();
    edit_config(key, value);
    fs::copy_file(root_ / "config.json", folder / "config.json", fs::copy_options::overwrite_existing);
    return folder;
  }

  static void expect_refused(const fs::path& folder, const std::vector<std::string>& parts) {
    try {
      load_model(folder);
      FAIL() << "expected an error that names " << join(parts);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kCheckpoint) << error.what();
      const std::string text = error.what();
      for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text << " lacks " << part;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }

  const testing::TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
};

const std::string kSomeTensor = "model.layers.1.mlp.experts.3.up_proj.weight";

TEST_F(Checkpoint, SavedAndLoadedWeightsAreTheSameBits) {
  for (const auto dtype : {BaseDtype::kFloat32, BaseDtype::kBFloat16, BaseDtype::kFloat64}) {
    fs::remove_all(root_ / "model");
    fs::remove_all(root_ / "again");
    const auto model = load_model(saved(dtype));
    save_model(*model, root_ / "again");
    EXPECT_EQ(read_file(root_ / "model" / "model.safetensors"), read_file(root_ / "again" / "model.safetensors"));
    EXPECT_EQ(read_file(root_ / "model" / "config.json"), read_file(root_ / "again" / "config.json"));
  }
}

TEST_F(Checkpoint, ShardsHoldWhatASingleFileHolds) {
  const auto folder = saved(BaseDtype::kBFloat16, 600);
  EXPECT_FALSE(fs::exists(folder / "model.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "model.safetensors.index.json"));
  const auto sharded = load_model(folder)->parameters();
  const auto whole = init_model(root_ / "config.json", BaseDtype::kBFloat16, 1)->parameters();
  ASSERT_EQ(sharded.size(), whole.size());
  for (const auto& [name, tensor] : whole) EXPECT_TRUE(at::equal(tensor, sharded.at(name))) << name;
}

std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files[entry.path().filename()] = read_file(entry.path());
  return files;
}

TEST_F(Checkpoint, AModelWrittenTensorByTensorIsTheOneBuiltInMemory) {
  for (const int64_t shard_bytes : {kShardBytes, int64_t{600}})
    for (const auto dtype : {BaseDtype::kFloat32, BaseDtype::kBFloat16}) {
      fs::remove_all(root_ / "model");
      fs::remove_all(root_ / "streamed");
      write_random_model(root_ / "config.json", root_ / "streamed", dtype, 1, shard_bytes);
      EXPECT_EQ(files_in(root_ / "streamed"), files_in(saved(dtype, shard_bytes)));
    }
}

TEST_F(Checkpoint, ALargeTensorIsDrawnInBlocksToTheSameBits) {
  const auto tensor = random_source(0.3, BaseDtype::kFloat32, 9)->take("big", {257, 1031});
  std::vector<float> expected(257 * 1031);
  RandomStream(9, "init big").fill_normal(expected, 0.3);
  EXPECT_EQ(std::vector<float>(tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + tensor.numel()),
            expected);
}

TEST_F(Checkpoint, AModelBeyondTheDiskOrAnyModelIsRefusedBeforeItIsDrawn) {
  const auto refused = [&](ErrorKind kind, std::string_view says) {
    try {
      write_random_model(root_ / "config.json", root_ / "model", BaseDtype::kFloat32, 1);
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
    EXPECT_FALSE(fs::exists(root_ / "model") || fs::exists(root_ / "model.part"));
  };
  edit_config("vocab_size", int64_t{1} << 28);
  edit_config("hidden_size", 3 * (1 << 20));
  edit_config("num_key_value_heads", 3);
  refused(kIo, "model: the model needs ");
  edit_config("vocab_size", 11);
  edit_config("hidden_size", 12);
  edit_config("num_experts", int64_t{1} << 28);
  refused(kCheckpoint, "num_hidden_layers or num_experts is too large");
  edit_config("num_experts", (int64_t{1} << 28) + 1);
  refused(kCheckpoint, "num_experts is 268435457, allowed: 1 to 268435456");
}

TEST_F(Checkpoint, LeaveDiscardsTheTensorsWithTheWholePrefixAlone) {
  const std::set<std::string> names{"layer",     "layer.",     "layer.1",     "layer.1.",      "layer.1.a",
                                    "layer.1.z", "layer.1.zz", "layer.10.a",  "layer.1/a",     "layer.2.a",
                                    "layes",     "Layer.1.a",  "layer.0.9.a", "layer.1\u00e9", "x.layer.1.a"};
  TensorMap tensors;
  for (const auto& name : names) tensors[name] = at::ones({2, 3});
  save_safetensors(root_ / "model.safetensors", tensors);
  for (const std::string prefix : {"layer.1.", "layer.1", "layer.1.z", "layer", "lay", "", "a", "layer.3.", "zzz"}) {
    const auto source = folder_source(root_, {});
    source->leave(prefix);
    for (const auto& name : names) EXPECT_NE(source->has(name), name.starts_with(prefix)) << prefix << " of " << name;
    source->leave(prefix);
    for (const auto& name : names)
      if (source->has(name)) source->take(name, {2, 3});
    source->finish();
  }
}

TEST_F(Checkpoint, AMissingTensorIsNamed) {
  const auto folder = saved();
  respoil(folder, [](TensorMap& tensors) { tensors.erase(kSomeTensor); });
  expect_refused(folder, {folder.string(), kSomeTensor, "missing", "[7, 12]"});
}

TEST_F(Checkpoint, AnUnexpectedTensorIsNamed) {
  const auto folder = saved();
  respoil(folder, [](TensorMap& tensors) { tensors["model.layers.2.input_layernorm.weight"] = at::ones({12}); });
  expect_refused(folder, {folder.string(), "model.layers.2.input_layernorm.weight", "unexpected"});
}

TEST_F(Checkpoint, FrequenciesOfPositionsAreLeftOutOfTheLayersThatThereAre) {
  const auto expected = load_model(saved())->parameters();
  const auto respoil_with = [&](const std::string& name) {
    respoil(root_ / "model", [&](TensorMap& tensors) { tensors[name] = at::ones({2}); });
  };
  for (const auto* name : {"model.layers.0.self_attn.rotary_emb.inv_freq",
                           "model.layers.1.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"})
    respoil_with(name);
  const auto loaded = load_model(root_ / "model")->parameters();
  ASSERT_EQ(loaded.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(loaded.at(name), tensor)) << name;
  for (const std::string name :
       {"model.layers.2.self_attn.rotary_emb.inv_freq", "model.layers.1.self_attn.rotary_emb.cos_cached",
        "model.layers.0.mlp.rotary_emb.inv_freq", "rotary_emb.inv_freq"}) {
    fs::remove_all(root_ / "model");
    saved();
    respoil_with(name);
    expect_refused(root_ / "model", {name, "unexpected"});
  }
}

TEST_F(Checkpoint, AWrongShapeIsNamed) {
  const auto folder = saved();
  respoil(folder, [](TensorMap& tensors) { tensors[kSomeTensor] = tensors[kSomeTensor].t().contiguous(); });
  expect_refused(folder, {folder.string(), kSomeTensor, "[12, 7]", "[7, 12]"});
}

TEST_F(Checkpoint, AnIntegerTensorIsNamed) {
  const auto folder = saved();
  respoil(folder, [](TensorMap& tensors) { tensors[kSomeTensor] = tensors[kSomeTensor].to(at::kInt); });
  expect_refused(folder, {folder.string(), kSomeTensor, "Int"});
}

TEST_F(Checkpoint, AWeightThatIsNotFiniteIsNamedInEveryType) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      fs::remove_all(root_ / "model");
      const auto folder = saved();
      respoil(folder, [&](TensorMap& tensors) {
        tensors[kSomeTensor] = tensors[kSomeTensor].to(dtype);
        tensors[kSomeTensor][2][5] = bad;
      });
      expect_refused(folder, {folder.string(), kSomeTensor, "not finite"});
    }
}

TEST_F(Checkpoint, AValueBeyondTheTypeThatIsWrittenIsRefusedWithTheTypesThatHoldIt) {
  const auto written = [&](double value, at::ScalarType type, BaseDtype dtype) {
    const TensorMap tensors{{"first", at::ones({2, 3})}, {"second", at::full({3, 2}, value, type)}};
    return testing::refusal([&] { write_checkpoint(root_ / "new", "{}", tensors, dtype, {}, 1 << 20); });
  };
  EXPECT_NE(
      written(1e39, at::kDouble, BaseDtype::kFloat32)
          .find("tensor second does not fit float32: its largest value is 1e+39, and float32 ends at 3.40282e+38; "
                "allowed: --dtype float64"),
      std::string::npos)
      << written(1e39, at::kDouble, BaseDtype::kFloat32);
  EXPECT_NE(written(3.4e38, at::kFloat, BaseDtype::kBFloat16).find("allowed: --dtype float32 or float64"),
            std::string::npos);
  EXPECT_NE(
      written(INFINITY, at::kFloat, BaseDtype::kFloat64).find("second holds a value that is not finite in float32"),
      std::string::npos);
  EXPECT_FALSE(fs::exists(root_ / "new"));
  const TensorMap shapes{{"drawn", at::empty({2, 3}, at::device(at::kMeta))}};
  const auto drawn = [](const std::string&) { return at::full({2, 3}, NAN); };
  EXPECT_NE(
      testing::refusal([&] { write_checkpoint(root_ / "new", "{}", shapes, drawn, 1 << 20); }).find("tensor drawn"),
      std::string::npos);
  EXPECT_FALSE(fs::exists(root_ / "new"));
}

TEST_F(Checkpoint, AValueBeyondTheTypeThatIsLoadedIsRefused) {
  for (const auto& [value, type, dtype, says] :
       {std::tuple{1e39, at::kDouble, BaseDtype::kFloat32, "does not fit float32: its largest value is 1e+39, and"},
        {1e39, at::kDouble, BaseDtype::kBFloat16, "does not fit bfloat16"},
        {3.4e38, at::kFloat, BaseDtype::kBFloat16, "does not fit bfloat16"}}) {
    fs::remove_all(root_ / "model");
    const auto folder = saved();
    respoil(folder, [&, &value = value, &type = type](TensorMap& tensors) {
      tensors[kSomeTensor] = tensors[kSomeTensor].to(type);
      tensors[kSomeTensor][2][5] = -value;
    });
    const auto said = testing::refusal([&, &dtype = dtype] { load_model(folder, dtype); });
    EXPECT_NE(said.find(concat(folder.string(), ": tensor ", kSomeTensor, " ", says)), std::string::npos) << said;
    EXPECT_NO_THROW(load_model(folder, BaseDtype::kFloat64));
  }
}

TEST_F(Checkpoint, AFloat64MatrixBesideANarrowerEmbeddingIsRefusedByTheKernels) {
  const auto batch = data::pack_ids(std::vector<std::vector<int64_t>>{{1, 4, 9, 2}, {7, 7}});
  const auto expected = init_model(root_ / "config.json", BaseDtype::kFloat32, 1)->hidden(batch, {});
  BaseStorage aten;
  aten.engine = nn::EngineKind::kAten;
  for (const std::string name :
       {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.gate", "model.layers.1.mlp.experts.3.up_proj", "lm_head",
        "model.layers.1.input_layernorm", "model.embed_tokens"}) {
    fs::remove_all(root_ / "model");
    const auto folder = saved();
    const auto full = name + ".weight";
    respoil(folder, [&](TensorMap& tensors) { tensors[full] = tensors[full].to(at::kDouble); });
    EXPECT_TRUE(load_model(folder, BaseDtype::kFloat32)->hidden(batch, {}).allclose(expected, 1e-5, 1e-6)) << name;
    if (name.ends_with("norm") || name.ends_with("tokens")) {  // hidden states may be wider than weights
      EXPECT_TRUE(load_model(folder)->hidden(batch, {}).to(at::kFloat).allclose(expected, 1e-4, 1e-5)) << name;
      continue;
    }
    expect_refused(folder, {(folder / "config.json").string(), full, "float64", "model.dtype = \"float32\""});
    if (name.find("experts") != name.npos) continue;  // engine aten holds them in one tensor
    const auto hidden = load_model(folder, aten)->hidden(batch, {.compute = {.engine = nn::EngineKind::kAten}});
    EXPECT_TRUE(hidden.allclose(expected, 1e-4, 1e-5)) << name;
  }
}

TEST_F(Checkpoint, LayersBeyondAnyModelAreRefusedBeforeAnythingOfTheirNumberIsMade) {
  edit_config("num_hidden_layers", int64_t{1} << 28);
  const auto said = testing::refusal([&] { load_shape(root_ / "config.json"); });
  EXPECT_NE(said.find("num_hidden_layers is 268435456, allowed: 1 to 1048576"), std::string::npos) << said;
}

TEST_F(Checkpoint, ATruncatedFileIsRefused) {
  const auto folder = saved();
  fs::resize_file(folder / "model.safetensors", fs::file_size(folder / "model.safetensors") - 10);
  expect_refused(folder, {"model.safetensors"});
}

TEST_F(Checkpoint, AShardMustBeANameInTheSameFolderAndATensorStandOnceInTheIndex) {
  const auto folder = saved(BaseDtype::kBFloat16, 600);
  const auto file = folder / "model.safetensors.index.json";
  const auto whole = load_json(file);
  using namespace std::string_literals;
  for (const auto& name : {"../x"s, ".."s, "."s, ""s, "/etc/passwd"s, "a\\b"s, "model\0.safetensors"s, "a\nb"s}) {
    auto index = whole;
    index["weight_map"][kSomeTensor] = name;
    write_file_atomic(file, index.dump());
    expect_refused(folder,
                   {file.string(), "weight_map." + std::string(kSomeTensor), "the name of a file in the same folder"});
  }
  auto index = whole;
  index["weight_map"][kSomeTensor] = 5;
  write_file_atomic(file, index.dump());
  expect_refused(folder, {file.string(), kSomeTensor, "is 5, expected a string"});
  write_file_atomic(file, R"({"weight_map": {"a": "x", "a": "y"}})");
  expect_refused(folder, {file.string(), "the key \"a\" stands twice"});
  write_file_atomic(file, whole.dump() + "\0"s);
  expect_refused(folder, {file.string(), "a NUL byte"});
}

TEST_F(Checkpoint, WrongTypesAndDeepValuesInAConfigAreNamedInOneShortLine) {
  Json deep = "x";
  for (int i = 0; i < 100; ++i) deep = Json::array({std::move(deep)});
  const std::vector<std::pair<std::string, Json>> settings = {
      {"rope_parameters", Json{{"rope_type", 5}}},
      {"rope_parameters", Json{{"rope_theta", "far"}}},
      {"rope_parameters", 3},
      {"hidden_size", deep},
      {"hidden_size", int64_t{1} << 40},
      {"vocab_size", uint64_t{1} << 63},
      {"hidden_act", std::string(100'000, 'x')},
      {"model_type", 7},
  };
  for (const auto& [key, value] : settings) expect_refused(saved_with(key, value), {"config.json: " + key, " is "});
}

TEST_F(Checkpoint, APathThatTheSystemCannotLookAtIsAnErrorThatNamesIt) {
  fs::create_symlink(root_ / "loop", root_ / "loop");
  for (const auto& folder : {root_ / "loop", root_ / std::string(300, 'x')}) {
    try {
      load_model(folder);
      ADD_FAILURE() << folder;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kIo) << error.what();
      EXPECT_NE(std::string(error.what()).find("cannot be looked at"), std::string::npos) << error.what();
    }
  }
}

TEST_F(Checkpoint, AMissingShardAndAMissingFolderAreNamed) {
  const auto folder = saved(BaseDtype::kBFloat16, 600);
  const auto index = load_json(folder / "model.safetensors.index.json");
  const auto shard = index["weight_map"][kSomeTensor].get<std::string>();
  fs::remove(folder / shard);
  expect_refused(folder, {folder.string(), shard, "missing"});
  expect_refused(root_ / "nowhere", {"nowhere"});
}

TEST_F(Checkpoint, UnsupportedSettingsAreNamed) {
  const std::vector<std::pair<std::string, Json>> settings{
      {"is_causal", false},
      {"hidden_act", "gelu"},
      {"rope_scaling", Json{{"type", "longrope"}, {"factor", 2.0}}},
      {"rope_scaling", Json{{"type", "linear"}}},
      {"rope_parameters", Json{{"rope_type", "yarn"}, {"factor", 0.5}}},
      {"rope_parameters", Json{{"rope_thetta", 1.0}}},
      {"sliding_window", 4},
      {"layer_types", Json::array({"full_attention", "sliding_attention"})},
      {"rms_norm_eps", nullptr},
      {"rope_theta", nullptr},
      {"num_experts_per_tok", 6},
      {"num_key_value_heads", 2},
      {"num_attention_heads", 5},
      {"hidden_size", "wide"},
  };
  for (const auto& [key, value] : settings) expect_refused(saved_with(key, value), {"config.json", key.substr(0, 4)});
}

TEST_F(Checkpoint, DropoutIsRefusedWithTheReasonAndWhatToDo) {
  expect_refused(saved_with("attention_dropout", 0.1),
                 {"config.json: attention_dropout is 0.1, supported: 0.0, because training here has no dropout: set it "
                  "to 0.0 in a copy of config.json; inference does not use it"});
  EXPECT_NO_THROW(load_model(saved_with("attention_dropout", 0.0)));
}

TEST_F(Checkpoint, AnotherFamilyIsRefusedWithTheKnownOnes) {
  const auto folder = saved();
  edit_config("model_type", "gpt2");
  fs::copy_file(root_ / "config.json", folder / "config.json", fs::copy_options::overwrite_existing);
  expect_refused(folder, {"gpt2", "olmoe"});
}

TEST_F(Checkpoint, BothSpellingsOfThePositionBaseGiveTheSameModel) {
  const data::PackedBatch batch = data::pack_ids(std::vector<std::vector<int64_t>>{{1, 4, 9, 2}, {7, 7}});
  const auto hidden = [&] { return init_model(root_ / "config.json", BaseDtype::kFloat32, 3)->hidden(batch, {}); };
  const auto old_spelling = hidden();
  auto config = Json::parse(kConfig4);
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config.erase("torch_dtype");
  config["dtype"] = "float32";
  config["rope_parameters"] = Json{{"rope_theta", 500.0}, {"rope_type", "default"}};
  write_config(config);
  EXPECT_TRUE(at::equal(old_spelling, hidden()));
  config["rope_parameters"]["rope_theta"] = 600.0;
  write_config(config);
  EXPECT_FALSE(at::equal(old_spelling, hidden()));
}

TEST_F(Checkpoint, ATiedHeadIsTheEmbeddingAndIsNotStoredTwice) {
  edit_config("tie_word_embeddings", true);
  const auto folder = saved();
  const auto model = load_model(folder);
  EXPECT_FALSE(model->parameters().contains("lm_head.weight"));
  EXPECT_EQ(model->head().values_OI.const_data_ptr(),
            model->parameters().at("model.embed_tokens.weight").const_data_ptr());
  respoil(folder, [](TensorMap& tensors) { tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone(); });
  EXPECT_NO_THROW(load_model(folder));
  respoil(folder, [](TensorMap& tensors) { tensors["lm_head.weight"] += 1; });
  expect_refused(folder, {"lm_head.weight", "differs"});
}

TEST_F(Checkpoint, SavingIntoAFolderThatIsInUseIsRefused) {
  const auto folder = saved();
  EXPECT_THROW(save_model(*load_model(folder), folder), Error);
}

TEST_F(Checkpoint, TheSameSeedDrawsTheSameModel) {
  const auto draw = [&](uint64_t seed) {
    return init_model(root_ / "config.json", BaseDtype::kFloat32, seed)->parameters();
  };
  const auto first = draw(5), again = draw(5), other = draw(6);
  EXPECT_TRUE(at::equal(first.at(kSomeTensor), again.at(kSomeTensor)));
  EXPECT_FALSE(at::equal(first.at(kSomeTensor), other.at(kSomeTensor)));
  EXPECT_FALSE(at::equal(first.at(kSomeTensor), first.at("model.layers.0.mlp.experts.3.up_proj.weight")));
  EXPECT_NEAR(first.at("model.embed_tokens.weight").std().item<double>(), 0.1, 0.03);
  EXPECT_TRUE(at::equal(first.at("model.norm.weight"), at::ones({12})));
}

}  // namespace
}  // namespace evenkeel::models
