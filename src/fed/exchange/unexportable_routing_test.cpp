#include "fed/exchange/unexportable_routing.h"

#include <ATen/ATen.h>

#include "fed/run/state_evaluation.h"
#include "fed/testing.h"
#include "lora/peft.h"
#include "scoring/testing.h"

namespace evenkeel::fed {
namespace {

class Served : public testing::SmallRun {
 protected:
  static std::vector<std::string> servers_of(std::string_view method,
                                             std::initializer_list<std::string_view> settings = {}) {
    auto e = experiment(method, Purpose::kTrain, "evaluate.budgets=[0.25]", settings);
    std::vector<std::string> names;
    for (const auto& point : evaluation_points(e.server, beginning(e).state))
      names.push_back(concat(point.rank_eval_mode, config::name_of(point.served_by)));
    return names;
  }

  /// A state with factors that matter and a phi that moves the choice of experts.
  static methods::ServerState trained(Experiment& e) {
    auto state = beginning(e).state;
    for (auto& [site, f] : state.global.adapters) f.b = at::full_like(f.b, 0.2);
    for (auto& [name, extra] : state.global.extras)
      if (name.ends_with(".phi")) extra = at::linspace(-1, 1, extra.numel(), at::kFloat);
    restore_clients(e.server, e.fabric, {.state = state});
    return state;
  }

  static std::vector<std::string> outputs(std::span<const scoring::Prediction> predictions) {
    std::vector<std::string> all;
    for (const auto& one : predictions) all.push_back(concat(one.output, " | ", one.ranked));
    return all;
  }

  /// What `evaluate --model --adapter` does with the file.
  static std::vector<std::string> of_the_file(const Experiment& e, nn::GateNorm gates, int64_t top_k) {
    const auto adapters = lora::load_peft_adapter(root() / "adapter", e.server.sites);
    std::vector<scoring::Prediction> predictions;
    const auto& config = e.server.config;
    testing::evaluate_task(*e.fabric.context.model, e.fabric.context.tokenizer,
                           {.adapters = &adapters, .router = {.top_k = top_k, .gate_norm = gates}},
                           data::find_task("builtin:sizes"),
                           data::test_rows(data::find_task("builtin:sizes"), config.rows(config->evaluate.limit)),
                           e.fabric.context.evaluation(), &predictions);
    return outputs(predictions);
  }
};

TEST_F(Served, ScoresAsExportedAreMadeWhereSomethingCannotTravel) {
  using Names = std::vector<std::string>;
  const Names run{"run"}, phi{"run", "transformers", "native_gates"}, gates{"run", "native_gates"};
  EXPECT_EQ(servers_of("ub-smoe"), phi);
  EXPECT_EQ(servers_of("ub-smoe", {"method.ub-smoe.phi_at_eval=false"}), gates);
  EXPECT_EQ(servers_of("ub-smoe", {"method.gate_norm=\"olmoe_native\""}), (Names{"run", "transformers"}));
  EXPECT_EQ(servers_of("ub-smoe", {"method.gate_norm=\"softmax_all\"", "method.ub-smoe.phi_at_eval=false"}), run);
  EXPECT_EQ(servers_of("ub-smoe", {"evaluate.as_exported=false"}), run);
  EXPECT_EQ(servers_of("a3smoe"), gates);
  EXPECT_EQ(servers_of("a3smoe", {"method.a3smoe.rescaler=\"fixed\""}), phi);
  EXPECT_EQ(servers_of("smoe-llb"), gates);
  EXPECT_EQ(servers_of("hetlora", {"method.gate_norm=\"renorm_selected\""}), (Names{"arun", "brun", "bnative_gates"}));
  for (const auto* all_travels : {"fedit", "fed-sb"}) EXPECT_EQ(servers_of(all_travels), run) << all_travels;
  for (const auto* by_rank : {"hetlora", "flora"}) EXPECT_EQ(servers_of(by_rank), (Names{"arun", "brun"})) << by_rank;
}

TEST(ServedGates, EveryMethodIsScoredWithTheGatesOfServersWhereTheyDiffer) {
  using Ways = std::vector<scoring::ServedBy>;
  const models::GateRule renormalised{.renormalise = true, .key = "norm_topk_prob", .servers = false};
  const models::GateRule as_servers{.renormalise = false, .key = "norm_topk_prob", .servers = false};
  EXPECT_EQ(unexportable_routing({}, renormalised).served_differently(), Ways{scoring::ServedBy::kNativeGates});
  EXPECT_EQ(unexportable_routing({}, as_servers).served_differently(), Ways{});
  EXPECT_EQ(unexportable_routing({}, {.renormalise = true}).served_differently(), Ways{}) << "servers read the key";
}

TEST(ServedGates, TransformersIsScoredWhereNoKeyAsksForTheGatesOfTheRun) {
  using scoring::ServedBy;
  using Ways = std::vector<ServedBy>;
  const nn::RouterOptions renormalised{.gate_norm = nn::GateNorm::kRenormSelected},
      softmax{.gate_norm = nn::GateNorm::kSoftmaxAll};
  const models::GateRule never{}, always{.renormalise = true, .servers = true}, by_key{.key = "norm_topk_prob"};
  EXPECT_EQ(unexportable_routing(renormalised, never).served_differently(), Ways{ServedBy::kTransformers});
  EXPECT_EQ(unexportable_routing(softmax, never).served_differently(), Ways{});
  EXPECT_EQ(unexportable_routing(softmax, always).served_differently(), Ways{ServedBy::kTransformers})
      << "servers compute the same gates";
  EXPECT_EQ(unexportable_routing(renormalised, always).served_differently(), Ways{});
  EXPECT_EQ(unexportable_routing(renormalised, by_key).served_differently(), Ways{});
  EXPECT_EQ(served_gates(renormalised.gate_norm, ServedBy::kTransformers, never), nn::GateNorm::kCheckpoint);
  EXPECT_EQ(served_gates(softmax.gate_norm, ServedBy::kTransformers, always), nn::GateNorm::kCheckpoint);
  EXPECT_EQ(served_gates(renormalised.gate_norm, ServedBy::kTransformers, by_key), nn::GateNorm::kRenormSelected);
  EXPECT_EQ(served_gates(renormalised.gate_norm, ServedBy::kRun, never), nn::GateNorm::kRenormSelected);
}

TEST_F(Served, WhatIsScoredAsExportedIsTheExportedFile) {
  auto e = experiment("ub-smoe", Purpose::kTrain, "train.transport_dtype=\"bfloat16\"",
                      {"evaluate.tasks=[\"builtin:sizes\"]"});
  const auto state = trained(e);
  const auto adapter = methods::whole_adapter(state);
  lora::save_peft_adapter(root() / "adapter", adapter, e.server.all_sites, {});
  std::map<scoring::ServedBy, std::vector<std::string>> scored;
  for (const auto& point : evaluation_points(e.server, state)) {
    const auto one = score(e.server, e.fabric, state, point, {{.task = "builtin:sizes", .predictions = true}}).value();
    EXPECT_EQ(one.score.served_by, point.served_by);
    scored[point.served_by] = outputs(one.predictions);
    const auto file_gates =
        point.served_by == scoring::ServedBy::kTransformers ? nn::GateNorm::kRenormSelected : nn::GateNorm::kCheckpoint;
    const bool same = outputs(one.predictions) == of_the_file(e, file_gates, one.score.top_k);
    EXPECT_EQ(same, point.served_by != scoring::ServedBy::kRun) << config::name_of(point.served_by) << point.budget;
  }
  EXPECT_NE(scored.at(scoring::ServedBy::kTransformers), scored.at(scoring::ServedBy::kNativeGates));
}

TEST(ServedRecord, OnlyAScoreAsExportedSaysSo) {
  EXPECT_FALSE(record::write(scoring::TaskScore{.task = "arc_c"}).contains("as_exported"));
  const Json line = record::write(scoring::TaskScore{.task = "arc_c", .served_by = scoring::ServedBy::kNativeGates});
  EXPECT_EQ(line["as_exported"], true);
  EXPECT_EQ(line["served_by"], "native_gates");
  EXPECT_EQ(record::read<scoring::TaskScore>({line, "here"}).served_by, scoring::ServedBy::kNativeGates);
}

}  // namespace
}  // namespace evenkeel::fed
