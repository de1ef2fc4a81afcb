#include "study/definition/equal_functions.h"

#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "fed/testing.h"

namespace evenkeel::study {
namespace {

/// A study of a sparse model without renormalised gates, unless `model` is changed.
struct OnModel {
  testing::TemporaryFolder folder{};
  std::string model{testing::kSmallModel};
  std::string study = "seeds = [5, 1]";

  /// Returns the complaint about arms given as "name: setting, setting".
  std::string complaint(const std::vector<std::pair<std::string, std::string>>& arms) const {
    write_file_atomic(folder.path() / "config.json", model);
    write_file_atomic(folder.path() / "base.toml",
                      concat("threads = 1\n[model]\ncompute_dtype = \"float32\"\npath = \"", folder.path().string(),
                             "\"\n[evaluate]\nbudgets = [0.25, 1.0]\n"));
    std::string text = concat("[study]\nbase = \"base.toml\"\n", study, "\n");
    for (const auto& [name, set] : arms) text += concat("[[study.arm]]\nname = \"", name, "\"\nset = [", set, "]\n");
    write_file_atomic(folder.path() / "gates.toml", text);
    return testing::refusal([&] {
      const StudyRequest request{.file = StudyFile::load(folder.path() / "gates.toml")};
      const auto arms = plan_arms(request, pinned_settings(request, 1));
      const auto runs = plan_runs(arms, request.file.study.seeds);
      check_equal_functions(request.file.study, runs);
    });
  }
};

using Arms = std::vector<std::pair<std::string, std::string>>;
const Arms kBoth{
    {"plain", "\"method.name=fedit\""}, {"mean", "\"method.name=a3smoe\""}, {"half", "\"method.name=ffa-lora\""}};

::testing::AssertionResult says(const std::string& line, std::initializer_list<std::string_view> words) {
  for (const auto word : words)
    if (line.find(word) == line.npos) return ::testing::AssertionFailure() << '"' << word << "\" is not in: " << line;
  return ::testing::AssertionSuccess();
}

TEST(EqualFunctions, ArmsWithOtherGatesAreNamedWithTheirValuesAndBothWaysOut) {
  EXPECT_TRUE(
      says(OnModel{}.complaint(kBoth),
           {"renormalised in mean (renorm_selected)", "not in plain, half (olmoe_native)", "method.gate_norm",
            "norm_topk_prob", "set = [\"method.gate_norm=renorm_selected\"]", "free = [\"method.gate_norm\"]"}));
}

TEST(EqualFunctions, ManyArmsAreCountedSoThatTheLineStaysShort) {
  Arms arms;
  for (int i = 0; i < 30; ++i) {
    arms.emplace_back(concat("plain-", i, std::string(60, 'x')), "\"method.name=fedit\"");
    arms.emplace_back(concat("mean-", i, std::string(60, 'x')), "\"method.name=a3smoe\"");
  }
  const auto line = OnModel{}.complaint(arms);
  EXPECT_TRUE(says(line, {"mean-0", "plain-0", " and 25 more (renorm_selected)", " and 25 more (olmoe_native)"}));
  EXPECT_LE(line.size(), 480u) << line;
}

TEST(EqualFunctions, AnArmOfOneMethodWithAnotherGateIsNamedToo) {
  const Arms arms{{"one", "\"method.name=fedit\""},
                  {"two", "\"method.name=fedit\", \"method.gate_norm=renorm_selected\""}};
  EXPECT_TRUE(says(OnModel{}.complaint(arms), {"in two (renorm_selected)", "in one (olmoe_native)"}));
}

TEST(EqualFunctions, OneGateForAllArmsOrTheKeyAmongTheFreeOnesIsAllowed) {
  for (const auto* study :
       {"set = [\"method.gate_norm=renorm_selected\"]", "set = [\"method.gate_norm=olmoe_native\"]",
        "set = [\"method={ gate_norm = 'softmax_all' }\"]", "free = [\"method.gate_norm\"]", "free = [\"method\"]"})
    EXPECT_EQ((OnModel{.study = concat("seeds = [1]\n", study)}.complaint(kBoth)), "no error") << study;
}

TEST(EqualFunctions, TheFunctionCountsAndNotTheNameOfTheKeysValue) {
  OnModel renormalised;
  const auto at = renormalised.model.find("\"norm_topk_prob\": false");
  renormalised.model.replace(at, std::string_view("\"norm_topk_prob\": false").size(), "\"norm_topk_prob\": true");
  EXPECT_EQ(renormalised.complaint(kBoth), "no error") << "olmoe_native renormalises on this checkpoint";
  const Arms same{{"one", "\"method.name=fedit\""}, {"two", "\"method.name=fedit\", \"method.gate_norm=softmax_all\""}};
  EXPECT_EQ(OnModel{}.complaint(same), "no error") << "softmax_all is what the checkpoint does";
  EXPECT_TRUE(says(renormalised.complaint(same), {"in one (olmoe_native)", "in two (softmax_all)"}));
}

TEST(EqualFunctions, DenseModelsHaveNoGates) {
  OnModel dense;
  dense.model =
      R"({"model_type": "olmo", "vocab_size": 420, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu", "rope_theta": 10000.0,
 "max_position_embeddings": 1024, "tie_word_embeddings": false, "attention_bias": false, "clip_qkv": null,
 "eos_token_id": 0, "pad_token_id": 1})";
  EXPECT_EQ(dense.complaint({{"one", "\"method.name=fedit\""},
                             {"two", "\"method.name=flexlora\", \"method.gate_norm=renorm_selected\""}}),
            "no error");
}

TEST(EqualFunctions, RankMethodsThatAreScoredWithAllExpertsAloneAreNamed) {
  const Arms arms{{"rank", "\"method.name=flexlora\""}, {"plain", "\"method.name=fedit\""}};
  const auto with = [&](const std::string& study) { return OnModel{.study = "seeds = [1]\n" + study}.complaint(arms); };
  EXPECT_TRUE(says(with("set = [\"evaluate.rank_eval_modes=[a]\"]"),
                   {"4 at every budget in rank", "1, 4 at budgets 0.25, 1 in plain", "evaluate.rank_eval_modes",
                    "[study] set", "free = [\"evaluate.rank_eval_modes\"]"}));
  EXPECT_EQ(with("set = [\"evaluate.rank_eval_modes=[b]\"]"), "no error");
  EXPECT_EQ(with(""), "no error") << "both modes are scored";
  EXPECT_EQ(with("set = [\"evaluate.rank_eval_modes=[a]\", \"evaluate.budgets=[1.0]\"]"), "no error");
  EXPECT_EQ(with("set = [\"evaluate.rank_eval_modes=[a]\"]\nfree = [\"evaluate.rank_eval_modes\"]"), "no error");
}

}  // namespace
}  // namespace evenkeel::study
