#include "lora/peft_programs.h"

#include <gtest/gtest.h>

namespace evenkeel::lora {
namespace {

/// Sites of two layers: a router and three projections of experts each, and dense linears in a third layer. The fused
/// layout has another name for the router of the second layer.
Sites two_sparse_layers_and_a_dense_one() {
  Sites sites{{"model.layers.2.mlp.up_proj", {.in = 3, .out = 5, .role = SiteRole::kMlp}},
              {"model.layers.2.self_attn.q_proj", {.in = 3, .out = 4, .role = SiteRole::kAttention}}};
  for (const int64_t layer : {0, 1}) {
    const auto block = "model.layers." + std::to_string(layer) + ".mlp";
    const auto router = block + ".gate";
    sites[router] = {.in = 3,
                     .out = 2,
                     .role = SiteRole::kRouter,
                     .modules = {router},
                     .fused = {.module = layer == 0 ? router : "model.layers.1.moe.gate"}};
    int64_t part = 0;
    for (const auto* name : {"gate_proj", "up_proj", "down_proj"})
      sites[block + ".experts." + name] = {
          .experts = 2, .in = 3, .out = 5, .moe_layer = block, .role = SiteRole::kExpert, .fused = {.part = part++}};
  }
  return sites;
}

std::string why(PeftVersion version, PeftFamily family, PeftLayout layout, const std::set<std::string>& sites) {
  return why_not_whole(version, {family, layout, sites}, two_sparse_layers_and_a_dense_one());
}

const std::string kFirst = "model.layers.0.mlp.experts.", kSecond = "model.layers.1.mlp.experts.";
const std::string kAttention = "model.layers.2.self_attn.q_proj", kGate = "model.layers.0.mlp.gate",
                  kRenamed = "model.layers.1.mlp.gate";

/// Each line was seen with PEFT 0.21 on a random OLMoE.
TEST(PeftPrograms, OneVersionWantsBothHalvesOfALayerAndDownProjInSomeLayer) {
  const auto in_021 = [](const std::set<std::string>& sites) {
    return why(PeftVersion::k021, PeftFamily::kConverted, PeftLayout::kPerExpert, sites);
  };
  for (const auto& whole :
       std::vector<std::set<std::string>>{{kAttention, kGate},
                                          {kFirst + "down_proj"},
                                          {kFirst + "gate_proj", kFirst + "up_proj", kSecond + "down_proj"},
                                          {kFirst + "gate_proj", kFirst + "up_proj", kFirst + "down_proj",
                                           kSecond + "gate_proj", kSecond + "up_proj"}})
    EXPECT_EQ(in_021(whole), "") << *whole.begin();
  for (const auto& half : std::vector<std::set<std::string>>{
           {kFirst + "gate_proj", kSecond + "up_proj"},
           {kFirst + "gate_proj", kFirst + "up_proj", kFirst + "down_proj", kSecond + "gate_proj"},
           {kFirst + "gate_proj", kFirst + "down_proj", kSecond + "up_proj", kSecond + "down_proj"}})
    EXPECT_NE(in_021(half).find("alone"), std::string::npos) << in_021(half);
  EXPECT_NE(in_021({kFirst + "gate_proj", kFirst + "up_proj"}).find("leaves out gate_proj and up_proj"),
            std::string::npos);
  EXPECT_NE(in_021({"model.layers.2.mlp.up_proj"}).find("dense feed-forward blocks"), std::string::npos);
}

TEST(PeftPrograms, TheOtherVersionHasNoFusedExperts) {
  const auto in_017 = [](PeftFamily family, const std::set<std::string>& sites) {
    return why(PeftVersion::k017, family, PeftLayout::kFused, sites);
  };
  EXPECT_EQ(in_017(PeftFamily::kConverted, {kAttention, kGate}), "");
  EXPECT_NE(in_017(PeftFamily::kConverted, {kRenamed}).find("refuses it"), std::string::npos);
  EXPECT_NE(in_017(PeftFamily::kConverted, {kRenamed, kGate}).find("computes something else"), std::string::npos);
  EXPECT_NE(in_017(PeftFamily::kConverted, {kFirst + "up_proj"}).find("refuses it"), std::string::npos);
  for (const auto family : {PeftFamily::kConverted, PeftFamily::kJoined})
    EXPECT_NE(in_017(family, {kAttention, kFirst + "up_proj"}).find("computes something else"), std::string::npos);
  EXPECT_EQ(why(PeftVersion::k017, PeftFamily::kConverted, PeftLayout::kPerExpert, {kFirst + "up_proj"}), "");
}

TEST(PeftPrograms, TheOtherVersionRefusesRoutersThatAreNoLinears) {
  const auto in = [](PeftVersion version, PeftLayout layout, const std::set<std::string>& sites) {
    return why(version, PeftFamily::kConvertedRouters, layout, sites);
  };
  EXPECT_NE(in(PeftVersion::k017, PeftLayout::kPerExpert, {kGate, kAttention}).find("no linear"), std::string::npos);
  EXPECT_EQ(in(PeftVersion::k017, PeftLayout::kPerExpert, {kAttention, kFirst + "up_proj"}), "");
  EXPECT_EQ(in(PeftVersion::k017, PeftLayout::kFused, {kGate}), "");
  EXPECT_EQ(in(PeftVersion::k021, PeftLayout::kPerExpert, {kGate}), "");
  EXPECT_NE(in(PeftVersion::k021, PeftLayout::kPerExpert, {"model.layers.2.mlp.up_proj"}).find("dense feed-forward"),
            std::string::npos);
}

TEST(PeftPrograms, OneVersionTakesTheGateOfASharedExpertForARouter) {
  auto sites = two_sparse_layers_and_a_dense_one();
  sites["model.layers.0.mlp.shared_expert.up_proj"] = {.modules = {"model.layers.0.mlp.shared_expert.up_proj"}};
  const auto in = [&](PeftLayout layout, const std::set<std::string>& adapted) {
    return why_not_whole(PeftVersion::k021, {PeftFamily::kConverted, layout, adapted}, sites);
  };
  EXPECT_NE(in(PeftLayout::kPerExpert, {kGate}).find("gate of the shared expert"), std::string::npos);
  EXPECT_EQ(in(PeftLayout::kFused, {kGate}), "");
  EXPECT_EQ(in(PeftLayout::kPerExpert, {kAttention}), "");
}

TEST(PeftPrograms, AFamilyThatNoTestLoadsIsNotExactAndGivesNoWarning) {
  const auto sites = two_sparse_layers_and_a_dense_one();
  EXPECT_EQ(why(PeftVersion::k021, PeftFamily::kUntried, PeftLayout::kPerExpert, {kAttention}),
            "not tried with this family");
  EXPECT_TRUE(not_readable_in_peft(PeftFamily::kUntried, {kFirst + "up_proj"}, sites).empty());
  EXPECT_TRUE(not_readable_in_peft(PeftFamily::kConverted, {kFirst + "up_proj"}, sites).empty()) << "padded";
  EXPECT_EQ(not_readable_in_peft(PeftFamily::kJoined, {kFirst + "up_proj"}, sites),
            std::vector<std::string>{"transformers 4.57 + PEFT 0.17 (run): not readable there (refuses it: none of its "
                                     "target_parameters is there)"});
}

}  // namespace
}  // namespace evenkeel::lora
