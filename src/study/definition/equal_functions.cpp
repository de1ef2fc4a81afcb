#include "study/definition/equal_functions.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/plain/text.h"
#include "fed/round/server.h"
#include "models/causal_lm.h"
#include "records/run_settings.h"

namespace evenkeel::study {
namespace {

constexpr std::string_view kGates = "method.gate_norm", kModes = "evaluate.rank_eval_modes", kModel = "model.path";

bool is_free(const StudySection& study, std::string_view key) {
  return std::any_of(study.free.begin(), study.free.end(),
                     [&](const auto& section) { return records::is_in_section(key, section); });
}

/// An arm with the description of its model.
struct ArmModel {
  const PlannedRun& run;
  const models::ModelSpec& spec;

  nn::GateNorm gate_norm() const { return run.config->method.gate_norm; }
  bool gates_sum_to_one() const { return nn::renormalises(gate_norm(), spec.gates.renormalise); }
};

/// Reads the description of each model once.
class Specs {
 public:
  const models::ModelSpec& of(const std::string& path) {
    auto& model = models_[path];
    if (!model) model = models::load_shape(models::resolve_model_path(path));
    return model->spec();
  }

 private:
  std::map<std::string, std::unique_ptr<models::CausalLm>> models_;
};

/// Returns every arm once, with its first run.
std::vector<ArmModel> arms_of(std::span<const PlannedRun> runs, Specs& specs) {
  std::vector<ArmModel> arms;
  std::set<std::string> known;
  for (const auto& run : runs) try {
      if (known.insert(run.arm).second) arms.push_back({run, specs.of(run.config->model.path)});
    } catch (const Error& error) {
      throw error.with_context(concat("arm ", run.arm));
    }
  return arms;
}

/// Returns the first names of a list, and the number of the others.
std::string some_of(std::span<const std::string> names) {
  constexpr size_t kMost = 5;
  if (names.size() <= kMost) return shown(join(names), 90);
  return concat(shown(join(names.first(kMost)), 90), " and ", names.size() - kMost, " more");
}

/// Returns "fedit, ffa-lora (olmoe_native)": the arms whose gates are renormalised or not, by value of the key.
std::string gate_side(std::span<const ArmModel> arms, bool sum_to_one) {
  std::map<std::string_view, std::vector<std::string>> by_value;
  for (const auto& arm : arms)
    if (arm.gates_sum_to_one() == sum_to_one) by_value[config::name_of(arm.gate_norm())].push_back(arm.run.arm);
  std::vector<std::string> texts;
  for (const auto& [value, names] : by_value) texts.push_back(concat(some_of(names), " (", value, ")"));
  return join(texts);
}

/// Checks arms of sparse models. Where models alone differ, `model.path` is free and says so.
void check_gates(const StudySection& study, std::span<const ArmModel> sparse) {
  const auto one_value = [&](auto&& value) {
    return std::all_of(sparse.begin(), sparse.end(), [&](const auto& arm) { return value(arm) == value(sparse[0]); });
  };
  if (sparse.empty() || is_free(study, kGates) || one_value([](const auto& arm) { return arm.gates_sum_to_one(); }))
    return;
  if (is_free(study, kModel) && one_value([](const auto& arm) { return arm.gate_norm(); })) return;
  const auto& key = sparse[0].spec.gates.key;
  fail(kConfig, "gates differ: renormalised in ", gate_side(sparse, true), "; not in ", gate_side(sparse, false),
       ", by ", kGates, key.empty() ? "" : concat(" and the model's ", key),
       "; allowed: the same in all arms, as by [study] set = [\"", kGates, "=renorm_selected\"], or [study] free = [\"",
       kGates, "\"]");
}

/// Returns the numbers of experts per token at the budgets of evaluations, "1, 2, 4, 8".
std::string top_ks(const ArmModel& arm) {
  std::vector<int64_t> all;
  for (const double budget : arm.run.config->evaluate.budgets)
    all.push_back(fed::active_experts(arm.spec, budget, "evaluation budget"));
  return join(all);
}

bool is_scored_with_all_experts(const ArmModel& arm) {
  const auto modes = arm.run.config->method.entry().rank_eval_modes(arm.run.config->evaluate.rank_eval_modes, true);
  return modes == std::vector<std::string>{"a"};
}

std::string names_of(std::span<const ArmModel> arms, bool all_experts) {
  std::vector<std::string> names;
  for (const auto& arm : arms)
    if (is_scored_with_all_experts(arm) == all_experts) names.push_back(arm.run.arm);
  return some_of(names);
}

/// Checks that rank methods are not scored with all experts alone where other arms are scored with fewer.
void check_scored_experts(const StudySection& study, std::span<const ArmModel> sparse) {
  if (is_free(study, kModes)) return;
  const auto all_experts = names_of(sparse, true), own = names_of(sparse, false);
  if (all_experts.empty() || own.empty()) return;
  const auto fewer = std::find_if(sparse.begin(), sparse.end(), [](const ArmModel& arm) {
    const auto& budgets = arm.run.config->evaluate.budgets;
    return !is_scored_with_all_experts(arm) && std::any_of(budgets.begin(), budgets.end(), [&](double budget) {
      return fed::active_experts(arm.spec, budget, "evaluation budget") < arm.spec.top_k;
    });
  });
  if (fewer == sparse.end()) return;
  fail(kConfig, "experts per token differ: ", fewer->spec.top_k, " at every budget in ", all_experts, "; ",
       top_ks(*fewer), " at budgets ", join(fewer->run.config->evaluate.budgets), " in ", own, ", by ", kModes,
       " = [\"a\"]; allowed: \"b\" among them, as by [study] set = [\"", kModes, "=[a, b]\"], or [study] free = [\"",
       kModes, "\"]");
}

}  // namespace

void check_equal_functions(const StudySection& study, std::span<const PlannedRun> runs) {
  Specs specs;
  auto arms = arms_of(runs, specs);
  std::vector<ArmModel> sparse;
  for (const auto& arm : arms)
    if (arm.spec.num_experts > 0) sparse.push_back(arm);
  check_gates(study, sparse);
  check_scored_experts(study, sparse);
}

}  // namespace evenkeel::study
