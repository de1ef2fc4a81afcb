#include "report/serving.h"

#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "base/plain/hub_name.h"
#include "base/testing.h"
#include "report/model_card.h"

namespace evenkeel::report {
namespace {

class Serving : public ::testing::Test {
 protected:
  /// Returns the facts of a small OLMoE whose projections `targets` have adapters of rank 20.
  ServingFacts facts(const std::vector<std::string>& targets, nn::RouterOptions router = {},
                     bool renormalise = false) const {
    const auto file = folder_.path() / "config.json";
    write_file_atomic(file, concat(R"({"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], "vocab_size": 42,
 "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "num_experts": 7, "num_experts_per_tok": 4, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "max_position_embeddings": 64, "tie_word_embeddings": false, "attention_bias": false, "clip_qkv": null,
 "initializer_range": 0.1, "eos_token_id": 0, "pad_token_id": 1, "norm_topk_prob": )",
                                   renormalise ? "true" : "false", "}"));
    const auto model = models::load_shape(file);
    return serving_facts(*model, lora::make_adapters(model->sites(targets), 20, 1.0, 3), router);
  }
  static std::string line(ExportFormat format, const ServingFacts& facts, std::string_view program) {
    for (const auto& served : serving(format, facts))
      if (served.program.starts_with(program)) return serving_line(served);
    return "no such program";
  }

  const testing::TemporaryFolder folder_;
};

const std::vector<std::string> kAll{"q_proj", "gate_proj", "up_proj", "down_proj", "gate"};

TEST_F(Serving, ExactServingIsReported) {
  const auto plain = facts({"q_proj", "gate_proj", "up_proj", "down_proj"});
  for (const auto* program : {"transformers 4.57", "transformers 5", "llama.cpp"})
    EXPECT_NE(line(ExportFormat::kPeft, plain, program).find(": exact"), std::string::npos) << program;
  EXPECT_EQ(line(ExportFormat::kPeft, plain, "vLLM"), "vLLM 0.33 (read in its source): exact; --max-lora-rank 32");
  for (const auto& served : serving(ExportFormat::kMerged, plain)) EXPECT_TRUE(served.lost.empty()) << served.program;
}

TEST_F(Serving, LossOfPhiRescalerAndGatesIsReported) {
  nn::RouterOptions router{.gate_norm = nn::GateNorm::kRenormSelected,
                           .modulation = {{"model.layers.0.mlp", at::Tensor()}}};
  const auto ours = facts(kAll, router);
  EXPECT_EQ(line(ExportFormat::kMerged, ours, "transformers 5"), "transformers 5 + PEFT 0.21 (run): without phi");
  EXPECT_EQ(
      line(ExportFormat::kPeft, ours, "transformers 4.57"),
      "transformers 4.57 + PEFT 0.17 (run): without phi; set norm_topk_prob to true in the base model's config.json");
  EXPECT_EQ(line(ExportFormat::kMerged, ours, "vLLM"),
            "vLLM 0.33 (read in its source): without phi, gates renormalised over the selected experts");
  EXPECT_EQ(line(ExportFormat::kPeft, ours, "SGLang"),
            "SGLang 0.5 (read in its source): not readable there (refuses adapters of routers)");
  EXPECT_EQ(line(ExportFormat::kPeft, facts({"q_proj", "v_proj"}, router), "SGLang"),
            "SGLang 0.5 (read in its source): without phi, gates renormalised over the selected experts; "
            "--lora-strict-loading, or it may skip weights");
}

TEST_F(Serving, RenormalisingBasesAreReportedForServersThatIgnoreTheKey) {
  const auto native = facts(kAll, {}, true), served = facts(kAll, {.gate_norm = nn::GateNorm::kSoftmaxAll}, true);
  EXPECT_NE(line(ExportFormat::kPeft, native, "llama.cpp").find("gates renormalised"), std::string::npos);
  EXPECT_NE(line(ExportFormat::kPeft, served, "llama.cpp").find(": exact"), std::string::npos);
  EXPECT_NE(line(ExportFormat::kPeft, served, "transformers 5").find("set norm_topk_prob to false"), std::string::npos);
  EXPECT_NE(line(ExportFormat::kMerged, served, "transformers 5").find(": exact"), std::string::npos);
}

TEST_F(Serving, UnsupportedLayoutsAndTargetsAreReported) {
  const auto gate = facts({"gate_proj"}), down = facts({"q_proj", "down_proj"}),
             attention = facts({"q_proj", "v_proj"});
  for (const auto* program : {"transformers 5", "vLLM", "llama.cpp"})
    EXPECT_NE(line(ExportFormat::kPeft, gate, program).find("not readable there"), std::string::npos) << program;
  EXPECT_NE(line(ExportFormat::kPeft, gate, "transformers 4.57").find(": exact"), std::string::npos);
  EXPECT_NE(line(ExportFormat::kPeft, down, "transformers 5").find(": exact"), std::string::npos);
  EXPECT_NE(line(ExportFormat::kPeft, down, "vLLM").find("not readable there"), std::string::npos);
  for (const auto* program : {"transformers 4.57", "SGLang", "llama.cpp"}) {
    EXPECT_NE(line(ExportFormat::kPeftFused, facts(kAll), program).find("not readable there"), std::string::npos)
        << program;
    EXPECT_EQ(line(ExportFormat::kPeftFused, attention, program).find("not readable there"), std::string::npos)
        << program;
  }
  const auto fused = line(ExportFormat::kPeftFused, facts(kAll), "vLLM");
  for (const auto* part : {"is_3d_lora_weight", "--enable-mixed-moe-lora-format", "--max-lora-rank 64"})
    EXPECT_NE(fused.find(part), std::string::npos) << fused;
}

TEST_F(Serving, ExpertsThatPeftLeavesOutAreReported) {
  const auto unpadded = facts({"v_proj", "gate_proj", "up_proj"});
  EXPECT_EQ(line(ExportFormat::kPeft, unpadded, "transformers 5"),
            "transformers 5 + PEFT 0.21 (run): not readable there (leaves out gate_proj and up_proj where no layer has "
            "down_proj; export without --no-pad)");
  EXPECT_NE(line(ExportFormat::kPeft, unpadded, "transformers 4.57").find(": exact"), std::string::npos);
  EXPECT_NE(line(ExportFormat::kPeftFused, unpadded, "transformers 5").find(": exact"), std::string::npos);
  const auto experts = facts({"gate_proj", "up_proj"});
  EXPECT_NE(line(ExportFormat::kPeftFused, experts, "transformers 4.57").find("(refuses it: "), std::string::npos);
}

TEST_F(Serving, GgufIsForLlamaCppOnly) {
  const auto all = serving(ExportFormat::kGguf, facts({"down_proj"}));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(serving_line(all[0]), "llama.cpp (run): exact");
  auto tied = facts(kAll);
  tied.tied_experts = true;
  EXPECT_EQ(line(ExportFormat::kMerged, tied, "llama.cpp"),
            "llama.cpp (run): not readable there (the head of this base model is its embedding)");
}

TEST_F(Serving, ACardHasAColumnPerWayOfServingAndEscapesMarkup) {
  records::RunRecords run;
  run.label = "a|b<i>";
  run.method = "ub-smoe";
  run.model = "models/\"x\"";
  run.manifest = Json::object();
  for (const auto by : {scoring::ServedBy::kRun, scoring::ServedBy::kNativeGates})
    for (const auto& [task, kind] :
         {std::pair{"boolq", scoring::AnswerKind::kChoice}, {"files", scoring::AnswerKind::kLikelihood}})
      run.evaluations.push_back({.round = 2,
                                 .method = "ub-smoe",
                                 .score = {.task = task,
                                           .served_by = by,
                                           .top_k = 4,
                                           .accuracy = by == scoring::ServedBy::kRun ? 0.75 : 0.5,
                                           .kind = kind,
                                           .nll = 1.25}});
  const auto card = model_card(run, fed::settle({}, {}), {.facts = facts(kAll), .scale = {}, .targets = kAll});
  EXPECT_EQ(card.find("models/"), std::string::npos) << card;  // no path of the training machine
  for (const auto* part : {"---\nlibrary_name: peft\n", "from_pretrained(\"<the base model>\", ", "# a b i>\n",
                           "## Scores after round 2\n", "| budget | K | in the run | exported: native gates |\n",
                           "| 1 | 4 | 75.0 | 50.0 |\n", "| 1 | 4 | 1.25 | 1.25 |\n",
                           "clients | 8, budgets 2 of 0.125, 2 of 0.25", "PEFT 0.21"})
    EXPECT_NE(card.find(part), std::string::npos) << part << "\n" << card;
}

TEST_F(Serving, ACardDoesNotAddUpTokensThatARoundWithholds) {
  records::RunRecords run;
  run.manifest = Json::object();
  for (const int64_t round : {1, 2}) {
    fed::RoundRecord record;
    record.round = round;
    record.tokens = 600;
    run.rounds.push_back(record);
  }
  const auto tokens = [&] {
    const auto card = model_card(run, fed::settle({}, {}), {.facts = facts(kAll), .scale = {}, .targets = kAll});
    const auto begin = card.find("| tokens trained on");
    return card.substr(begin, card.find('\n', begin) - begin);
  };
  EXPECT_EQ(tokens(), "| tokens trained on | 1.200 k |");
  run.rounds[0].clients.emplace_back().privacy = train::PrivateReport{.withheld = true};
  EXPECT_EQ(tokens(), "| tokens trained on | withheld |");
}

TEST(HubName, IsAValidRepositoryName) {
  for (const auto* good : {"gpt2", "allenai/OLMoE-1B-7B-0924", "a/b", "Foo-BAR_foo.bar123", "_a/b_", "123"})
    EXPECT_TRUE(is_hub_name(good)) << good;
  for (const auto* bad : {"", "/", "a/", "/a", "a/b/c", "a--b", "a..b", "x.git", ".a", "a.", "-a", "a-", "a b",
                          "caf\xc3\xa9", "builtin:tiny", "../models", "/tmp/model", "a/b\n", "C:\\x"})
    EXPECT_FALSE(is_hub_name(bad)) << bad;
  EXPECT_TRUE(is_hub_name(std::string(96, 'a')));
  EXPECT_FALSE(is_hub_name(std::string(97, 'a')));
}

}  // namespace
}  // namespace evenkeel::report
