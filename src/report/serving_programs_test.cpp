#include <gtest/gtest.h>

#include "models/testing.h"
#include "report/model_card.h"
#include "report/serving.h"

namespace evenkeel::report {
namespace {

using Targets = std::vector<std::string>;

const Targets kAttention{"q_proj", "v_proj"};
/// Every layer is sparse, as in the models that llama.cpp has.
const Json kAllSparse{{"decoder_sparse_step", 1}};
constexpr std::string_view kLostSum = "gates renormalised over the selected experts";
constexpr std::string_view kLostSoftmax = "gates that are not renormalised";

/// Returns the facts of an adapter with factors at `targets` of a small model.
ServingFacts facts_of(std::string_view family, const Targets& targets, nn::GateNorm gates = nn::GateNorm::kCheckpoint,
                      const Json& more = Json::object(), bool whole_layers = true) {
  const auto model = testing::make_model(family, models::BaseDtype::kFloat32, more);
  return serving_facts(*model, lora::make_adapters(model->sites(targets), 4, 1.0, 3), {.gate_norm = gates},
                       whole_layers);
}

Served served_by(std::string_view program, ExportFormat format, const ServingFacts& facts) {
  for (auto& served : serving(format, facts))
    if (served.program.starts_with(program)) return served;
  return {};
}

/// Returns what a program loses and asks for, in one text.
std::string said_by(std::string_view program, ExportFormat format, const ServingFacts& facts) {
  const auto served = served_by(program, format, facts);
  return served.reads ? concat(join(served.lost), "; ", join(served.asks)) : join(served.lost);
}

std::string in_sglang(std::string_view family, const Targets& targets, bool whole_layers = true) {
  const auto facts = facts_of(family, targets, nn::GateNorm::kCheckpoint, Json::object(), whole_layers);
  return said_by("SGLang", ExportFormat::kPeft, facts);
}

TEST(ModelCard, TellsGatesAndKOfModelsWithExpertsAlone) {
  records::RunRecords run;
  run.manifest = Json::object();
  const auto card = [&](std::string_view family, const Targets& targets) {
    return model_card(run, fed::settle({}, {}), {.facts = facts_of(family, targets), .scale = {}, .targets = targets});
  };
  const auto sparse = card("deepseek_v2", {"kv_b_proj"}), dense = card("llama", kAttention);
  EXPECT_NE(sparse.find("softmax over all experts, not renormalised"), std::string::npos) << sparse;
  EXPECT_NE(sparse.find("num_experts_per_tok"), std::string::npos) << sparse;
  EXPECT_EQ(dense.find("softmax"), std::string::npos) << dense;
  EXPECT_EQ(dense.find("num_experts_per_tok"), std::string::npos) << dense;
}

TEST(ServedGates, OnlyLlamaCppRenormalisesQwen3MoeWhateverTheKeySays) {
  auto keys = kAllSparse;
  keys["norm_topk_prob"] = true;
  const auto softmax = facts_of("qwen3_moe", kAttention, nn::GateNorm::kSoftmaxAll, keys);
  for (const auto format : {ExportFormat::kPeft, ExportFormat::kMerged, ExportFormat::kGguf})
    EXPECT_EQ(said_by("llama.cpp", format, softmax), concat(kLostSoftmax, "; ")) << config::name_of(format);
  for (const auto* program : {"transformers 4.57", "transformers 5", "vLLM", "SGLang"}) {
    const auto said = said_by(program, ExportFormat::kPeft, softmax);
    EXPECT_NE(said.find("set norm_topk_prob to false in the base model's config.json"), std::string::npos) << program;
    EXPECT_TRUE(said.starts_with("; ")) << said;
    EXPECT_EQ(said_by(program, ExportFormat::kMerged, softmax), "; ") << program;
  }
}

TEST(ServedGates, OnlyLlamaCppLosesTheSumOfOneOfQwen2Moe) {
  for (const bool in_llama_cpp : {true, false}) {
    const Json step{{"decoder_sparse_step", in_llama_cpp ? 1 : 2}};
    const auto renormalised = facts_of("qwen2_moe", kAttention, nn::GateNorm::kRenormSelected, step);
    EXPECT_EQ(said_by("llama.cpp", ExportFormat::kMerged, renormalised),
              in_llama_cpp ? concat(kLostSum, "; ") : "no architecture for this base model");
    for (const auto* program : {"vLLM", "SGLang"}) {
      EXPECT_EQ(said_by(program, ExportFormat::kMerged, renormalised), "; ") << program;
      EXPECT_NE(said_by(program, ExportFormat::kPeft, renormalised).find("set norm_topk_prob to true"),
                std::string::npos)
          << program;
    }
  }
}

TEST(ServedGates, NoProgramComputesGatesThatAFamilyWithoutAKeyDoesNot) {
  const auto deepseek = facts_of("deepseek_v2", {"o_proj"}, nn::GateNorm::kRenormSelected);
  for (const auto* program : {"transformers 4.57", "transformers 5", "vLLM", "SGLang"})
    for (const auto format : {ExportFormat::kPeft, ExportFormat::kMerged})
      EXPECT_TRUE(said_by(program, format, deepseek).starts_with(kLostSum)) << program << config::name_of(format);
  const auto mixtral = facts_of("mixtral", kAttention, nn::GateNorm::kSoftmaxAll);
  for (const auto* program : {"transformers 4.57", "transformers 5", "vLLM", "SGLang", "llama.cpp"})
    EXPECT_TRUE(said_by(program, ExportFormat::kPeft, mixtral).starts_with(kLostSoftmax)) << program;
}

TEST(ServedGates, AllServersFollowTheKeyOfGlm4Moe) {
  const auto facts = facts_of("glm4_moe", kAttention, nn::GateNorm::kRenormSelected, {{"norm_topk_prob", false}});
  for (const auto* program : {"vLLM", "SGLang", "llama.cpp"}) {
    EXPECT_NE(said_by(program, ExportFormat::kPeft, facts).find("set norm_topk_prob to true"), std::string::npos)
        << program;
    EXPECT_EQ(said_by(program, ExportFormat::kMerged, facts), "; ") << program;
  }
}

TEST(ServedGates, ADenseModelHasNone) {
  const auto facts = facts_of("llama", kAttention, nn::GateNorm::kRenormSelected);
  for (const auto& served : serving(ExportFormat::kPeft, facts)) EXPECT_TRUE(served.lost.empty()) << served.program;
}

TEST(InSglang, LinearsThatItStacksNeedEachOther) {
  EXPECT_EQ(in_sglang("llama", {"q_proj"}), "refuses q_proj without v_proj");
  EXPECT_EQ(in_sglang("llama", {"q_proj", "k_proj"}), "refuses q_proj without v_proj");
  EXPECT_EQ(in_sglang("llama", {"v_proj"}), "refuses v_proj without q_proj");
  EXPECT_EQ(in_sglang("llama", {"k_proj", "v_proj"}), "refuses k_proj without q_proj");
  EXPECT_EQ(in_sglang("llama", {"up_proj"}), "refuses up_proj without gate_proj");
  EXPECT_EQ(in_sglang("qwen2_moe", {"q_proj"}), "refuses q_proj without v_proj");
  EXPECT_EQ(in_sglang("deepseek_v3", {"q_proj"}), "refuses q_a_proj without kv_a_proj_with_mqa");
  EXPECT_EQ(in_sglang("deepseek_v3", {"v_proj"}), "refuses kv_a_proj_with_mqa without q_a_proj");
  for (const auto* family : {"llama", "qwen2_moe", "deepseek_v3"})
    for (const Targets& targets : {kAttention, Targets{"q_proj", "k_proj", "v_proj"}, Targets{"o_proj"},
                                   Targets{"gate_proj"}, Targets{"gate_proj", "up_proj", "down_proj"}})
      EXPECT_EQ(in_sglang(family, targets), "; --lora-strict-loading, or it may skip weights") << family;
}

TEST(InSglang, StackedCheckpointsNeedNothingElse) {
  for (const char* target : {"qkv_proj", "gate_up_proj", "down_proj"})
    EXPECT_EQ(in_sglang("phi3", {target}), "; --lora-strict-loading, or it may skip weights") << target;
}

TEST(InSglang, RoutersAndOtherNamesOfExpertsAreRefused) {
  EXPECT_EQ(in_sglang("olmoe", {"q_proj", "v_proj", "gate"}), "refuses adapters of routers");
  EXPECT_EQ(in_sglang("mixtral", {"up_proj"}), "refuses adapters of w2");
  EXPECT_EQ(in_sglang("mixtral", kAttention), "; --lora-strict-loading, or it may skip weights");
}

TEST(InSglang, ExpertsNeedBothTheirMatrices) {
  constexpr std::string_view kLeft = "leaves out experts without gate_proj or down_proj; export without --no-pad";
  for (const Targets& part : {Targets{"down_proj"}, Targets{"gate_proj", "up_proj"}, Targets{"gate_proj"}}) {
    EXPECT_EQ(in_sglang("olmoe", part, false), kLeft);
    EXPECT_EQ(in_sglang("olmoe", part, true), "; --lora-strict-loading, or it may skip weights");
  }
  EXPECT_EQ(in_sglang("olmoe", {"up_proj", "down_proj"}, false), "refuses up_proj without gate_proj");
  EXPECT_EQ(in_sglang("olmoe", {"gate_proj", "down_proj"}, false), "; --lora-strict-loading, or it may skip weights");
}

TEST(InSglang, FlexOlmoWasNotTried) {
  const auto facts = facts_of("flex_olmo", {"q_proj", "k_proj", "v_proj"});
  for (const auto format : {ExportFormat::kPeft, ExportFormat::kPeftFused, ExportFormat::kMerged})
    EXPECT_EQ(said_by("SGLang", format, facts), "no model of this family; not tried through transformers");
  EXPECT_EQ(said_by("vLLM", ExportFormat::kMerged, facts), "; ");
}

}  // namespace
}  // namespace evenkeel::report
