#include "lora/peft.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/testing.h"

namespace evenkeel::lora {
namespace {

const std::string kQuery = "model.layers.0.self_attn.q_proj";
const std::string kRouter = "model.layers.0.mlp.gate";
const std::string kUp = "model.layers.0.mlp.experts.up_proj";
const std::string kExpertsOf = "model.layers.0.mlp.experts";

Site stack(int64_t in, int64_t out, const std::string& projection, FusedPlace fused) {
  fused.module = kExpertsOf;
  Site site{3, in, out, "model.layers.0.mlp", SiteRole::kExpert, {}, fused};
  for (int64_t e = 0; e < 3; ++e) site.modules.push_back(concat(kExpertsOf, ".", e, ".", projection));
  return site;
}

const FusedPlace kGateUp{.parameter = "mlp.experts.gate_up_proj", .parts = 2};
const Sites kSites = {
    {kQuery, {0, 7, 5, {}, SiteRole::kAttention, {kQuery}}},
    {kRouter, {0, 7, 3, {}, SiteRole::kRouter, {kRouter}, {.module = kRouter, .parameter = "mlp.gate.weight"}}},
    {kUp, stack(7, 4, "up_proj", {.parameter = kGateUp.parameter, .part = 1, .parts = 2})},
    {kExpertsOf + ".down_proj", stack(4, 7, "down_proj", {.parameter = "mlp.experts.down_proj", .order = 1})}};
const PeftOptions kAsGiven{.base_model = "models/x", .whole_layers = false};
const PeftOptions kFusedAsGiven{.base_model = "models/x", .layout = PeftLayout::kFused, .whole_layers = false};

AdapterState example_adapters() {
  auto adapters = make_adapters(kSites, 2, 2.0, 42);
  for (auto& [name, f] : adapters)
    f.b = make_lora(name, {f.a.dim() == 3 ? 3 : 0, 2, f.b.size(-2), {}}, f.b.size(-2), 1, 7).a;
  return adapters;
}

class Peft : public ::testing::Test {
 protected:
  Peft() { save_peft_adapter(folder_, example_adapters(), kSites, kAsGiven); }

  void set_config(const std::string& key, const Json& value) const {
    auto config = load_json(folder_ / "adapter_config.json");
    config[key] = value;
    write_file_atomic(folder_ / "adapter_config.json", config.dump());
  }
  TensorMap tensors() const { return load_safetensors(folder_ / "adapter_model.safetensors").tensors; }
  void set_tensors(const TensorMap& tensors) const { save_safetensors(folder_ / "adapter_model.safetensors", tensors); }
  std::string refusal() const {
    try {
      load_peft_adapter(folder_, kSites);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kCheckpoint) << error.what();
      const std::string text = error.what();
      return text.substr(text.find(": ") + 2);
    }
    return "no error";
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(Peft, ARoundTripGivesTheSameFactors) {
  const auto loaded = load_peft_adapter(folder_, kSites);
  ASSERT_EQ(loaded.size(), kSites.size());
  for (const auto& [site, f] : example_adapters()) {
    EXPECT_TRUE(at::equal(loaded.at(site).a, f.a)) << site;
    EXPECT_TRUE(at::equal(loaded.at(site).b, f.b)) << site;
    EXPECT_EQ(loaded.at(site).scaling, 2.0);
  }
}

// The change of the base is in 16 bits, one site's change is a product, and only some sites have one.
TEST_F(Peft, JoiningWhileWritingEqualsJoiningBefore) {
  AdapterState changes;
  auto adapters = example_adapters();
  for (const auto& site : {kQuery, kUp})
    changes[site] = {adapters.at(site).a.to(at::kBFloat16), adapters.at(site).b.to(at::kBFloat16), {}, 1};
  add_to_base(changes, {{kQuery, {at::randn({4, 7}), at::randn({5, 4}), {}, 1}}});
  adapters.erase(kUp);
  const auto whole = joined(changes, adapters);
  ASSERT_EQ(whole.at(kQuery).rank(), 5) << "as high as the weight is";
  save_peft_adapter(folder_ / "before", whole, kSites, kAsGiven);
  save_peft_adapter(folder_ / "while", Joined(changes, adapters), kSites, kAsGiven);
  for (const auto* file : {"adapter_model.safetensors", "adapter_config.json"})
    EXPECT_EQ(read_file(folder_ / "before" / file), read_file(folder_ / "while" / file)) << file;
  save_peft_adapter(folder_ / "plain", Joined({}, example_adapters()), kSites, kAsGiven);
  EXPECT_EQ(read_file(folder_ / "plain/adapter_model.safetensors"), read_file(folder_ / "adapter_model.safetensors"));
}

TEST_F(Peft, NamesHaveOneLinearPerExpert) {
  const auto saved = tensors();
  EXPECT_EQ(saved.size(), 2u * (1 + 1 + 3 + 3));
  EXPECT_TRUE(at::equal(saved.at("base_model.model.model.layers.0.mlp.experts.2.up_proj.lora_B.weight"),
                        example_adapters().at(kUp).b[2]));
  EXPECT_TRUE(saved.contains("base_model.model.model.layers.0.mlp.gate.lora_A.weight"));
  const auto config = load_json(folder_ / "adapter_config.json");
  EXPECT_EQ(config["target_modules"], Json::array({"down_proj", "gate", "q_proj", "up_proj"}));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["r"], 2);
  EXPECT_EQ(config["lora_alpha"], 4);
}

/// Mixtral's checkpoints call these modules w1, w3 and w2 of block_sparse_moe. Sites and targets keep the project's
/// names.
TEST_F(Peft, ModulesAreNamedAsInTheFamily) {
  Site up = stack(7, 4, "up_proj", kGateUp);
  for (int64_t e = 0; e < 3; ++e) up.modules[static_cast<size_t>(e)] = concat("layers.0.moe.", 2 - e, ".w3");
  const AdapterState adapters{{kUp, example_adapters().at(kUp)}};
  save_peft_adapter(folder_, adapters, {{kUp, up}}, kAsGiven);
  EXPECT_TRUE(at::equal(tensors().at("base_model.model.layers.0.moe.0.w3.lora_B.weight"), adapters.at(kUp).b[2]));
  EXPECT_EQ(load_json(folder_ / "adapter_config.json")["target_modules"], Json::array({"w3"}));
  EXPECT_TRUE(at::equal(load_peft_adapter(folder_, {{kUp, up}}).at(kUp).b, adapters.at(kUp).b));
  EXPECT_EQ(refusal(), "tensor base_model.model.layers.0.moe.0.w3.lora_A.weight adapts a module the model lacks");
}

TEST_F(Peft, RankStabilisedScalingDividesByTheSquareRoot) {
  set_config("use_rslora", true);
  EXPECT_DOUBLE_EQ(load_peft_adapter(folder_, kSites).at(kQuery).scaling, 4 / std::sqrt(2.0));
}

TEST_F(Peft, AnAdapterMayCoverSomeSitesInAnotherDtype) {
  auto few = tensors();
  std::erase_if(few, [](const auto& entry) { return entry.first.find("q_proj") == std::string::npos; });
  for (auto& [name, tensor] : few) tensor = tensor.to(at::kBFloat16);
  set_tensors(few);
  const auto loaded = load_peft_adapter(folder_, kSites);
  EXPECT_EQ(loaded.size(), 1u);
  EXPECT_EQ(loaded.at(kQuery).a.scalar_type(), at::kFloat);
}

TEST_F(Peft, RejectsOtherKindsOfAdapters) {
  const std::vector<std::pair<std::string, Json>> bad = {{"peft_type", "IA3"},
                                                         {"use_dora", true},
                                                         {"bias", "all"},
                                                         {"modules_to_save", {"lm_head"}},
                                                         {"rank_pattern", {{"q_proj", "4"}}},
                                                         {"alpha_pattern", {{"q_proj", nullptr}}},
                                                         {"init_lora_weights", "pissa"},
                                                         {"target_parameters", "mlp.gate.weight"},
                                                         {"alora_invocation_tokens", {17, 4}},
                                                         {"use_rslora", "yes"},
                                                         {"lora_dropout", nullptr},
                                                         {"r", 0},
                                                         {"lora_alpha", "4"},
                                                         {"loftq_config", {{"loftq_bits", 4}}},
                                                         {"a_key_of_tomorrow", nullptr}};
  for (const auto& [key, value] : bad) {
    save_peft_adapter(folder_, example_adapters(), kSites, kAsGiven);
    set_config(key, value);
    EXPECT_EQ(refusal().substr(0, key.size() + 4), key + " is ") << key;
  }
}

TEST_F(Peft, AcceptsEveryDefaultKeyOfPeft) {
  // Keys that PEFT 0.17.1 and 0.21.2 write for LoraConfig(target_modules=...) and this program does not.
  for (const auto* key :
       {"alora_invocation_tokens", "arrow_config", "auto_mapping", "corda_config", "eva_config", "exclude_modules",
        "kasa_config", "layer_replication", "lora_ga_config", "megatron_config", "monteclora_config",
        "target_parameters", "trainable_token_indices", "use_bdlora", "velora_config"})
    set_config(key, nullptr);
  for (const auto* key : {"ensure_weight_tying", "lora_bias", "use_qalora"}) set_config(key, false);
  set_config("loftq_config", Json::object());
  set_config("megatron_core", "megatron.core");
  set_config("peft_version", "0.21.2");
  set_config("qalora_group_size", 16);
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(Peft, AStartThatLeavesTheBaseAsItIsIsAccepted) {
  set_config("eva_config", {{"rho", 2.0}, {"use_label_mask", true}});
  for (const auto* start : {"eva", "gaussian", "orthogonal", "mica"}) {
    set_config("init_lora_weights", start);
    EXPECT_TRUE(at::equal(load_peft_adapter(folder_, kSites).at(kQuery).b, example_adapters().at(kQuery).b)) << start;
  }
  for (const auto* start : {"pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga", "EVA"}) {
    set_config("init_lora_weights", start);
    EXPECT_EQ(refusal().substr(0, 21), "init_lora_weights is ") << start;
  }
  set_config("init_lora_weights", "eva");
  set_config("eva_config", 2.0);
  EXPECT_EQ(refusal(), "eva_config is 2.0, allowed: settings by name");
}

TEST_F(Peft, AFlagOfNullIsFalse) {
  for (const auto* key : {"fan_in_fan_out", "use_dora", "use_qalora", "use_rslora", "lora_bias", "ensure_weight_tying",
                          "inference_mode", "init_lora_weights"}) {
    save_peft_adapter(folder_, example_adapters(), kSites, kAsGiven);
    set_config(key, nullptr);
    EXPECT_EQ(refusal(), "no error") << key;
    EXPECT_DOUBLE_EQ(load_peft_adapter(folder_, kSites).at(kQuery).scaling, 2) << key;
  }
}

TEST_F(Peft, ErrorsNameTheExpectedType) {
  const std::vector<std::pair<std::string, Json>> bad = {{"r", "two"},
                                                         {"r", 0},
                                                         {"r", int64_t{1'000'000'000'000}},
                                                         {"lora_alpha", Json::array()},
                                                         {"use_rslora", "yes"},
                                                         {"bias", Json::array({Json::array({1})})}};
  for (const auto& [key, value] : bad) {
    save_peft_adapter(folder_, example_adapters(), kSites, kAsGiven);
    set_config(key, value);
    EXPECT_EQ(refusal().substr(0, key.size() + 4), key + " is ") << key;
  }
}

TEST_F(Peft, RejectsMissingUnexpectedMisshapenAndNonFiniteTensors) {
  const std::string name = "base_model.model.model.layers.0.mlp.experts.1.up_proj.lora_A.weight";
  const auto whole = tensors();
  auto changed = whole;
  changed.erase(name);
  set_tensors(changed);
  EXPECT_EQ(refusal(), "tensor " + name + " is missing");
  changed = whole;
  changed["base_model.model.lm_head.lora_A.weight"] = at::ones({2, 7});
  set_tensors(changed);
  EXPECT_EQ(refusal(), "tensor base_model.model.lm_head.lora_A.weight adapts a module the model lacks");
  changed = whole;
  changed["base_model.model.model.layers.0.mlp.experts.3.up_proj.lora_A.weight"] = at::ones({2, 7});
  set_tensors(changed);
  EXPECT_EQ(
      refusal(),
      "tensor base_model.model.model.layers.0.mlp.experts.3.up_proj.lora_A.weight adapts a module the model lacks");
  changed = whole;
  changed[name] = at::ones({2, 8});
  set_tensors(changed);
  EXPECT_EQ(refusal(), "tensor " + name + " is [2, 8], expected [2, 7]");
  changed = whole;
  changed[name] = at::full({2, 7}, NAN);
  set_tensors(changed);
  EXPECT_EQ(refusal(), "the adapter of " + kUp + " holds a value that is not finite");
}

TEST_F(Peft, DoesNotWriteWhatPeftCannotRepresent) {
  auto adapters = example_adapters();
  adapters.at(kQuery).scaling = 3;
  EXPECT_THROW(save_peft_adapter(folder_ / "new", adapters, kSites, kAsGiven), Error);
  EXPECT_FALSE(fs::exists(folder_ / "new"));
}

/// Returns the product of expert e from a fused pair. Experts are slowest in A and fastest in B.
at::Tensor fused_delta(const at::Tensor& a, const at::Tensor& b, int64_t experts, int64_t expert) {
  const int64_t rank = a.size(0) / experts;
  return at::matmul(b.view({b.size(0), rank, experts}).select(2, expert), a.view({experts, rank, -1})[expert]);
}

TEST_F(Peft, TheFusedLayoutHoldsTheSameUpdates) {
  const std::string gate = "model.layers.0.mlp.experts.gate_proj";
  auto adapters = example_adapters();
  adapters[gate] = make_lora(gate, kSites.at(kUp), 2, 2.0, 5);
  adapters[gate].b = at::rand_like(adapters[gate].b);
  auto sites = kSites;
  sites[gate] = stack(7, 4, "gate_proj", kGateUp);
  save_peft_adapter(folder_, adapters, sites, kFusedAsGiven);
  const auto saved = tensors();
  const std::string experts = "base_model.model.model.layers.0.mlp.experts";
  for (int64_t e = 0; e < 3; ++e) {
    const auto gate_up = fused_delta(saved.at(experts + ".base_layer.lora_A.weight"),
                                     saved.at(experts + ".base_layer.lora_B.weight"), 3, e);
    EXPECT_TRUE(gate_up.slice(0, 0, 4).allclose(delta_weight(adapters.at(gate))[e] / 2, 1e-5, 1e-6));
    EXPECT_TRUE(gate_up.slice(0, 4, 8).allclose(delta_weight(adapters.at(kUp))[e] / 2, 1e-5, 1e-6));
    const auto down = fused_delta(saved.at(experts + ".lora_A.weight"), saved.at(experts + ".lora_B.weight"), 3, e);
    EXPECT_TRUE(down.allclose(delta_weight(adapters.at("model.layers.0.mlp.experts.down_proj"))[e] / 2, 1e-5, 1e-6));
  }
  const auto config = load_json(folder_ / "adapter_config.json");
  EXPECT_EQ(config["target_modules"], Json::array({"q_proj"}));
  EXPECT_EQ(config["target_parameters"],
            Json::array({"mlp.experts.down_proj", "mlp.experts.gate_up_proj", "mlp.gate.weight"}));
  EXPECT_EQ(config["rank_pattern"]["gate_up_proj"], 4);
  EXPECT_EQ(config["alpha_pattern"]["gate_up_proj"], 8);
}

TEST_F(Peft, AnAdapterOfGateOnlyLeavesUpUnchanged) {
  save_peft_adapter(folder_, {{kUp, example_adapters().at(kUp)}}, kSites, kFusedAsGiven);
  const auto saved = tensors();
  const std::string experts = "base_model.model.model.layers.0.mlp.experts";
  const auto delta = fused_delta(saved.at(experts + ".lora_A.weight"), saved.at(experts + ".lora_B.weight"), 3, 1);
  EXPECT_EQ(delta.slice(0, 0, 4).abs().max().item<float>(), 0);
  EXPECT_TRUE(delta.slice(0, 4, 8).allclose(delta_weight(example_adapters().at(kUp))[1] / 2, 1e-5, 1e-6));
  EXPECT_TRUE(load_json(folder_ / "adapter_config.json")["rank_pattern"].empty());
}

/// All routed linear layers of a layer, and a dense one.
class FusedPeft : public Peft {
 protected:
  static Sites whole() {
    auto sites = kSites;
    sites[kGate] = stack(7, 4, "gate_proj", kGateUp);
    return sites;
  }
  static AdapterState adapters(const Sites& sites) {
    auto all = make_adapters(sites, 2, 2.0, 42);
    for (auto& [name, f] : all)
      f.b = make_lora(name, {f.a.dim() == 3 ? 3 : 0, 2, f.b.size(-2), {}}, f.b.size(-2), 1, 7).a;
    return all;
  }
  static inline const std::string kGate = "model.layers.0.mlp.experts.gate_proj";
  static inline const std::string kWrapped = "base_model.model.model.layers.0.mlp.experts.base_layer";
};

void expect_equal(const AdapterState& read, const AdapterState& written) {
  ASSERT_EQ(read.size(), written.size());
  for (const auto& [site, f] : written) {
    EXPECT_TRUE(at::equal(read.at(site).a, f.a)) << site;
    EXPECT_TRUE(at::equal(read.at(site).b, f.b)) << site;
    EXPECT_EQ(read.at(site).scaling, f.scaling) << site;
  }
}

TEST_F(FusedPeft, WrittenAdaptersAreReadBackBitForBit) {
  for (const std::vector<std::string>& without : {std::vector<std::string>{},
                                                  {kGate},
                                                  {kGate, kUp},
                                                  {kRouter, kUp},
                                                  {kExpertsOf + ".down_proj"},
                                                  {kGate, kExpertsOf + ".down_proj"}}) {
    auto sites = whole();
    for (const auto& site : without) sites.erase(site);
    save_peft_adapter(folder_, adapters(sites), sites, kFusedAsGiven);
    expect_equal(load_peft_adapter(folder_, whole()), adapters(sites));
  }
}

TEST_F(FusedPeft, LinearsThatShareAAreReadAtItsRank) {
  const auto sites = whole();
  save_peft_adapter(folder_, adapters(sites), sites, kFusedAsGiven);
  auto shared = tensors();
  auto& b = shared[kWrapped + ".lora_B.weight"];
  b = at::linspace(-1, 1, b.numel(), at::kFloat).view(b.sizes());
  set_tensors(shared);
  const auto read = load_peft_adapter(folder_, sites);
  for (int64_t e = 0; e < 3; ++e) {
    const auto both = fused_delta(shared.at(kWrapped + ".lora_A.weight"), b, 3, e) * 2;
    EXPECT_TRUE(delta_weight(read.at(kGate))[e].allclose(both.slice(0, 0, 4), 1e-5, 1e-6));
    EXPECT_TRUE(delta_weight(read.at(kUp))[e].allclose(both.slice(0, 4, 8), 1e-5, 1e-6));
  }
  EXPECT_EQ(read.at(kGate).rank(), 4);
  EXPECT_EQ(read.at(kQuery).rank(), 2);
}

TEST_F(FusedPeft, ErrorsNameTensorsOfWrongShape) {
  const auto sites = whole();
  save_peft_adapter(folder_, adapters(sites), sites, kFusedAsGiven);
  set_config("target_parameters", {"mlp.experts.gate_up_proj", "mlp.gate.weight"});
  EXPECT_EQ(refusal(),
            "model.layers.0.mlp.experts has factors of 2 parameters, and target_parameters names 1 of it that "
            "the model has");
  save_peft_adapter(folder_, adapters(sites), sites, kFusedAsGiven);
  set_config("rank_pattern", Json::object());
  EXPECT_EQ(refusal(), "tensor " + kWrapped + ".lora_A.weight is [12, 7], expected [6, 7]");
  save_peft_adapter(folder_, adapters(sites), sites, kFusedAsGiven);
  EXPECT_EQ(refusal(), "share 0 of model.layers.0.mlp.experts.gate_up_proj is adapted, which the model lacks");
}

TEST_F(Peft, PatternsMatchNameSuffixesInOrder) {
  auto changed = tensors();
  changed["base_model.model." + kQuery + ".lora_A.weight"] = at::full({3, 7}, 0.5);
  changed["base_model.model." + kQuery + ".lora_B.weight"] = at::full({5, 3}, 0.25);
  set_tensors(changed);
  // pattern, expected rank or nothing if it must not match
  for (const auto& [pattern, matches] :
       std::vector<std::pair<std::string, bool>>{{"q_proj", true},
                                                 {"self_attn.q_proj", true},
                                                 {"proj", false},
                                                 {"q_pro.", true},
                                                 {"_proj", false},
                                                 {".*q_proj", true},
                                                 {".*\\.q_proj", true},
                                                 {"model\\.layers\\.\\d+\\.self_attn\\.(q|v)_proj", true},
                                                 {"layers.1.self_attn.q_proj", false},
                                                 {"^model.layers.0.self_attn.q_proj", true},
                                                 {"q_proj.*", true},
                                                 {"model.layers.0.self_attn.q_proj", true},
                                                 {"x.model.layers.0.self_attn.q_proj", false}}) {
    set_config("rank_pattern", {{pattern, 3}});
    EXPECT_EQ(refusal() == "no error", matches) << pattern;
  }
  for (const auto& [patterns, fits] :
       {std::pair{R"({"q_proj":3,"self_attn.q_proj":9})", true}, {R"({"z.*":3,".*proj":9,"q_proj":3})", false}}) {
    set_config("rank_pattern", {{"PLACE", 1}});
    auto text = read_file(folder_ / "adapter_config.json");
    const std::string_view place = R"({"PLACE":1})";
    write_file_atomic(folder_ / "adapter_config.json", text.replace(text.find(place), place.size(), patterns));
    EXPECT_EQ(refusal() == "no error", fits) << patterns;
  }
}

TEST_F(Peft, ScalingsUseTheRankAndAlphaOfTheirPattern) {
  set_config("alpha_pattern", {{"q_proj", 6}});
  auto read = load_peft_adapter(folder_, kSites);
  EXPECT_EQ(read.at(kQuery).scaling, 3);
  EXPECT_EQ(read.at(kUp).scaling, 2);
  set_config("use_rslora", true);
  EXPECT_DOUBLE_EQ(load_peft_adapter(folder_, kSites).at(kQuery).scaling, 6 / std::sqrt(2.0));
}

TEST_F(Peft, ExpertsOfUnequalRankAndScalingAreStacked) {
  const std::string expert = "base_model.model.model.layers.0.mlp.experts.1.up_proj";
  auto changed = tensors();
  changed[expert + ".lora_A.weight"] = at::linspace(0, 1, 3 * 7, at::kFloat).view({3, 7});
  changed[expert + ".lora_B.weight"] = at::linspace(-1, 1, 4 * 3, at::kFloat).view({4, 3});
  set_tensors(changed);
  set_config("rank_pattern", {{"experts.1.up_proj", 3}});
  const auto read = load_peft_adapter(folder_, kSites).at(kUp);
  EXPECT_EQ(read.rank(), 3);
  const auto product = at::matmul(changed.at(expert + ".lora_B.weight"), changed.at(expert + ".lora_A.weight"));
  EXPECT_TRUE(delta_weight(read)[1].allclose(product * (4.0 / 3), 1e-5, 1e-6));
  EXPECT_TRUE(delta_weight(read)[2].allclose(delta_weight(example_adapters().at(kUp))[2], 1e-5, 1e-6));
}

TEST_F(Peft, RejectsInvalidAndCatastrophicPatterns) {
  set_config("rank_pattern", {{"q_proj(", 3}});
  EXPECT_NE(refusal().find("rank_pattern: q_proj( is no regular expression"), std::string::npos) << refusal();
  set_config("rank_pattern", {{"((a|[a-z_.0-9])*)*[XY]", 3}});
  EXPECT_NE(refusal().find("takes too many steps"), std::string::npos) << refusal();
}

TEST_F(FusedPeft, UnequalRanksAndScalingsAreWrittenAtOneRankAndScaling) {
  const auto sites = whole();
  expect_equal(with_one_rank(adapters(sites)), adapters(sites));
  auto unequal = adapters(sites);
  unequal[kUp] = make_lora(kUp, sites.at(kUp), 3, 0.5, 11);
  unequal[kUp].b = at::linspace(-1, 1, 3 * 4 * 3, at::kFloat).view({3, 4, 3});
  for (const auto& options : {kAsGiven, kFusedAsGiven}) {
    save_peft_adapter(folder_, with_one_rank(unequal), sites, options);
    const auto read = load_peft_adapter(folder_, sites);
    for (const auto& [site, factors] : unequal) {
      EXPECT_EQ(read.at(site).rank(), 3) << site;
      EXPECT_TRUE(delta_weight(read.at(site)).allclose(delta_weight(factors), 1e-5, 1e-6)) << site;
    }
  }
}

TEST_F(FusedPeft, JoinedAdaptersOfUnequalRankAreWrittenAtTheHighest) {
  const auto sites = whole();
  auto unequal = adapters(sites);
  unequal[kUp] = make_lora(kUp, sites.at(kUp), 3, unequal.at(kQuery).scaling, 11);
  unequal[kUp].b = at::linspace(-1, 1, 3 * 4 * 3, at::kFloat).view({3, 4, 3});
  auto& none = unequal.begin()->second;  // the first of the file, whose rank is that of all
  none = truncated(none, 0);
  const AdapterState no_change;
  for (const auto& options : {kAsGiven, kFusedAsGiven}) {
    save_peft_adapter(folder_, Joined(no_change, unequal), sites, options);
    const auto read = load_peft_adapter(folder_, sites);
    EXPECT_FALSE(read.contains(unequal.begin()->first)) << "its factors are zeros";
    for (const auto& [site, factors] : read) {
      EXPECT_EQ(factors.rank(), 3) << site;
      EXPECT_TRUE(delta_weight(factors).allclose(delta_weight(unequal.at(site)), 1e-5, 1e-6)) << site;
    }
    EXPECT_EQ(read.size() + 1, unequal.size());
  }
}

/// Returns the names of all tensors that hold zeros alone.
std::set<std::string> zero_tensors(const TensorMap& tensors) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors)
    if (!tensor.any().item<bool>()) names.insert(name);
  return names;
}

TEST_F(FusedPeft, MissingProjectionsAreFilledWithZerosAndReadAsMissing) {
  const auto sites = whole();
  const AdapterState attention{{kQuery, adapters(sites).at(kQuery)}};
  EXPECT_EQ(written_sites({kQuery}, sites, PeftLayout::kPerExpert, true).size(), 1u) << "attention needs no experts";
  auto partial = attention;
  partial[kUp] = adapters(sites).at(kUp);
  for (const auto layout : {PeftLayout::kPerExpert, PeftLayout::kFused}) {
    save_peft_adapter(folder_, partial, sites, {.layout = layout});
    const auto zeros = zero_tensors(tensors());
    EXPECT_EQ(zeros.size(), layout == PeftLayout::kFused ? 2u : 2u * 2 * 3);
    expect_equal(load_peft_adapter(folder_, sites), partial);
  }
}

TEST_F(Peft, AnAdapterWithoutEffectIsReadBack) {
  AdapterState zero{{kUp, {at::zeros({3, 2, 7}), at::zeros({3, 4, 2}), {}, 2.0}}};
  save_peft_adapter(folder_, zero, kSites, kAsGiven);
  EXPECT_EQ(load_peft_adapter(folder_, kSites).at(kUp).rank(), 2);
  for (auto* factor : {&zero.at(kUp).a, &zero.at(kUp).b})
    *factor = factor->slice(factor == &zero.at(kUp).a ? 1 : 2, 0, 0);
  for (const auto& nothing : {zero, AdapterState()}) {
    save_peft_adapter(folder_, nothing, kSites, kAsGiven);
    const auto read = load_peft_adapter(folder_, kSites);
    ASSERT_EQ(read.size(), 1u);
    EXPECT_FALSE(read.begin()->second.b.any().item<bool>());
  }
}

TEST_F(Peft, AValueBeyondFloat32IsRefusedByNameAndLeavesNoFile) {
  auto adapters = example_adapters();
  adapters.at(kQuery).b = at::full({5, 2}, 1e300, at::kDouble);
  const auto says = testing::refusal([&] { save_peft_adapter(folder_ / "new", adapters, kSites, kAsGiven); });
  EXPECT_NE(says.find("base_model.model." + kQuery + ".lora_B.weight"), std::string::npos) << says;
  EXPECT_NE(says.find("float32"), std::string::npos) << says;
  EXPECT_TRUE(fs::is_empty(folder_ / "new"));
}

/// Two layers with adapters on other linears. The file names parameters and ranks once for both.
TEST(FusedPeftOfUnequalLayers, IsReadBack) {
  Sites sites;
  for (const int64_t layer : {0, 1})
    for (auto [name, site] : std::map<std::string, Site>{
             {"gate_proj", stack(7, 4, "gate_proj", kGateUp)},
             {"up_proj", stack(7, 4, "up_proj", {.parameter = kGateUp.parameter, .part = 1, .parts = 2})},
             {"down_proj", stack(4, 7, "down_proj", {.parameter = "mlp.experts.down_proj", .order = 1})}}) {
      site.moe_layer = concat("model.layers.", layer, ".mlp");
      site.fused.module = site.moe_layer + ".experts";
      for (auto& module : site.modules) module.replace(13, 1, std::to_string(layer));
      sites[concat(site.fused.module, ".", name)] = site;
    }
  auto all = make_adapters(sites, 2, 2.0, 5);
  for (auto& [name, factors] : all) factors.b.fill_(0.5);
  const auto of = [](int64_t layer, std::string_view name) {
    return concat("model.layers.", layer, ".mlp.experts.", name);
  };
  for (const auto& [first, second] :
       {std::pair{"gate_proj", "up_proj"}, {"gate_proj", "down_proj"}, {"down_proj", "up_proj"}}) {
    const AdapterState some{{of(0, first), all.at(of(0, first))}, {of(1, second), all.at(of(1, second))}};
    const testing::TemporaryFolder folder;
    save_peft_adapter(folder.path(), some, sites, {.layout = PeftLayout::kFused, .whole_layers = false});
    const auto read = load_peft_adapter(folder.path(), sites);
    for (const auto& [site, factors] : some) EXPECT_TRUE(at::equal(read.at(site).a, factors.a)) << site;
    EXPECT_EQ(read.size(), 2u);
  }
}

}  // namespace
}  // namespace evenkeel::lora
