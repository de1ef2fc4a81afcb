#include "comparison/differences.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/plain/files.h"
#include "base/plain/text.h"
#include "fed/config/key_effects.h"
#include "lora/adapter.h"
#include "records/run_settings.h"

namespace evenkeel::comparison {
namespace {

constexpr std::string_view kUnknown = "not known";

/// Returns the string at a path of nested objects; "not known" if there is none.
std::string text_at(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const auto* key : path) {
    if (!at->is_object() || !at->contains(key)) return std::string(kUnknown);
    at = &at->at(key);
  }
  return at->is_string() && !at->get_ref<const std::string&>().empty() ? at->get<std::string>() : std::string(kUnknown);
}

/// A run with the label under which its values are listed.
struct Labelled {
  const records::RunRecords* run;
  std::string label;
};
/// Compared runs. Iterates over them.
struct Runs {
  std::span<const Labelled> all;
  bool joins_seeds = false;  ///< true: the values of a label's runs are one value, in the order of the runs

  auto begin() const { return all.begin(); }
  auto end() const { return all.end(); }
  size_t size() const { return all.size(); }
};

/// Returns the value of a key without quotes and brackets; "not known" if the run lacks it.
std::string plain_value(const records::RunRecords& run, const std::string& key) {
  const auto found = run.settings.find(key);
  if (found == run.settings.end()) return std::string(kUnknown);
  std::string text;
  for (const char c : found->second)
    if (std::string_view("[]\",").find(c) == std::string_view::npos) text += c;
  return text;
}

/// Returns the arithmetic, with the kernels if they were measured: "measured: own own widen ...".
std::string arithmetic_of(const records::RunRecords& run) {
  auto text = plain_value(run, "model.compute_dtype");
  for (const auto& [key, value] : run.settings)
    if (records::is_in_section(key, "model.products") && value != "[]")
      text += concat(text.find(' ') == text.npos ? ": " : " ", plain_value(run, key));
  return text;
}

std::string program_of(const records::RunRecords& run) {
  const auto commit = text_at(run.manifest, {"git"});
  return concat(text_at(run.manifest, {"version"}), ", git ", commit.substr(0, 12),
                commit.ends_with("-dirty") ? " with changes" : "");
}

/// Returns what the run did, not the names in its config, because a checkpoint may renormalise by itself.
std::string gating_of(const records::RunRecords& run) {
  if (run.rounds.empty()) return std::string(kUnknown);
  const auto& renormalised = run.rounds.back().gates_sum_to_one;
  if (!renormalised) return "no experts";
  return *renormalised ? "renormalised" : "not renormalised";
}

/// Formats values by ascending budget: "1, 2, 8", or "8" if all are equal.
template <typename Value>
std::string by_budget_text(const std::map<double, Value>& by_budget) {
  std::vector<Value> all;
  for (const auto& [budget, value] : by_budget) all.push_back(value);
  const bool are_equal = std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) == all.end();
  return are_equal && !all.empty() ? concat(all.front()) : join(all);
}

/// Returns the experts per token with which clients trained, by ascending budget.
std::string training_top_k_of(const records::RunRecords& run) {
  std::map<double, int64_t> by_budget;
  for (const auto& round : run.rounds)
    for (const auto& client : round.clients) by_budget[client.budget] = client.top_k;
  return by_budget.empty() ? std::string(kUnknown) : top_ks_text(by_budget);
}

/// Returns the LoRA scales with which clients trained, by ascending budget (docs/ambiguities.md, R21).
/// Arms of unequal ranks differ in them at equal lora.alpha and lora.rank.
std::string lora_scales_of(const records::RunRecords& run) {
  const auto alpha = parse_number<double>(plain_value(run, "lora.alpha"));
  const auto largest = parse_number<int64_t>(plain_value(run, "lora.rank"));
  if (!alpha || !largest) return std::string(kUnknown);
  const bool is_constant =
      plain_value(run, "lora.lora_scale_mode") == config::name_of(lora::LoraScaleMode::kConstScale);
  const lora::LoraScale scale{*alpha, *largest,
                              is_constant ? lora::LoraScaleMode::kConstScale : lora::LoraScaleMode::kFixedAlpha};
  std::map<double, std::string> by_budget;
  for (const auto& round : run.rounds)
    for (const auto& client : round.clients)
      if (client.rank > 0) by_budget[client.budget] = concat(scale.of(client.rank));
  return by_budget.empty() ? std::string(kUnknown) : by_budget_text(by_budget);
}

/// Returns the numbers of questions and rows of each task: "boolq 100, obqa 98 in 100".
std::string rows_of(const records::RunRecords& run) {
  std::map<std::string, std::string> counts;
  for (const auto& score : run.scores(run.last_evaluated()))
    counts[score.task] =
        score.questions == score.rows ? std::to_string(score.rows) : concat(score.questions, " in ", score.rows);
  std::vector<std::string> all;
  for (const auto& [task, count] : counts) all.push_back(concat(task, ' ', count));
  return all.empty() ? "nothing is evaluated" : join(all);
}

bool determines_time(std::string_view key) {
  return key == "clients.deadline" || key == "clients.quorum" || records::is_in_section(key, "client_profiles") ||
         records::is_in_section(key, "clients.profiles") ||
         (records::is_in_section(key, "clients.client") && key.ends_with("].profile"));
}

/// Returns the names of the client profiles and a fingerprint of the keys that determine simulated time: "box, phone
/// (1a2b3c4d)".
std::string profiles_of(const records::RunRecords& run) {
  if (run.rounds.empty() || !run.rounds.back().simulated) return "no simulated time";
  constexpr std::string_view kProfiles = "client_profiles.", kAnyKey = ".tokens_per_second";
  std::vector<std::string> names;
  std::string keys;
  for (const auto& [key, value] : run.settings) {
    if (!determines_time(key)) continue;
    keys += concat(key, " = ", value, '\n');
    if (key.starts_with(kProfiles) && key.ends_with(kAnyKey))
      names.push_back(key.substr(kProfiles.size(), key.size() - kProfiles.size() - kAnyKey.size()));
  }
  return concat(join(names), " (", sha256(keys).substr(0, 8), ")");
}

/// A value of a property and the label of a run that has it.
struct LabelledValue {
  std::string label, value;
};

/// Returns one value per label: that of its runs, or theirs in order if they differ, such as "1, 2; 4, 8; 1, 8 by
/// seed" of values that are lists.
std::vector<LabelledValue> joined(std::span<const LabelledValue> values) {
  std::vector<LabelledValue> all;
  for (const auto& [label, value] : values) {
    if (std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.label == label; })) continue;
    std::vector<std::string> of_label;
    for (const auto& one : values)
      if (one.label == label) of_label.push_back(one.value);
    const bool are_equal =
        std::adjacent_find(of_label.begin(), of_label.end(), std::not_equal_to<>()) == of_label.end();
    all.push_back({label, are_equal ? value : concat(join(of_label, "; "), " by seed")});
  }
  return all;
}

void add_value(std::vector<Difference::Side>& sides, const LabelledValue& one) {
  auto side = std::find_if(sides.begin(), sides.end(), [&](const auto& known) { return known.value == one.value; });
  if (side == sides.end()) side = sides.insert(side, {one.value, {}});
  if (std::find(side->runs.begin(), side->runs.end(), one.label) == side->runs.end()) side->runs.push_back(one.label);
}

/// Adds a property if it differs. Runs for which `value` returns nothing do not have it and are left out.
template <typename Value>
void add(std::vector<Difference>& all, std::string what, bool changes_function, const Runs& runs, const Value& value) {
  std::vector<LabelledValue> values;
  for (const auto& [run, label] : runs)
    if (std::optional<std::string> text = value(*run)) values.push_back({label, std::move(*text)});
  if (runs.joins_seeds) values = joined(values);
  Difference found{.what = std::move(what), .sides = {}, .changes_function = changes_function};
  for (const auto& one : values) add_value(found.sides, one);
  if (found.sides.size() > 1) all.push_back(std::move(found));
}

/// Returns the names of files that differ or are missing in some run.
std::set<std::string> unlike_files(const Runs& runs, bool of_models) {
  std::map<std::string, std::set<std::string>> fingerprints;
  std::map<std::string, size_t> holders;
  for (const auto& [run, label] : runs)
    for (const auto& [name, fingerprint] : records::input_files(*run, of_models)) {
      fingerprints[name].insert(fingerprint);
      ++holders[name];
    }
  std::set<std::string> names;
  for (const auto& [name, different] : fingerprints)
    if (different.size() > 1 || holders.at(name) < runs.size()) names.insert(name);
  return names;
}

void add_files(std::vector<Difference>& all, const char* what, const Runs& runs, bool of_models) {
  const auto names = unlike_files(runs, of_models);
  add(all, what, of_models, runs, [&](const records::RunRecords& run) {
    const auto own = records::input_files(run, of_models);
    std::vector<std::string> texts;
    for (const auto& name : names) texts.push_back(concat(name, ' ', own.contains(name) ? own.at(name) : "not there"));
    return join(texts);
  });
}

using SettingsOfRuns = std::map<const records::RunRecords*, config::Values>;

/// Returns the keys that some run has.
std::set<std::string> keys_of(const SettingsOfRuns& settings) {
  std::set<std::string> keys;
  for (const auto& [run, values] : settings)
    for (const auto& [key, value] : values) keys.insert(key);
  return keys;
}

bool lies_in_any(const std::string& key, std::span<const std::string> sections) {
  return std::any_of(sections.begin(), sections.end(),
                     [&](const auto& section) { return records::is_in_section(key, section); });
}

/// Shortens long values. Those that are equal then get a digest, so that they can be told apart.
void shorten(Difference& difference) {
  std::map<std::string, size_t> counts;
  for (const auto& side : difference.sides) ++counts[shown(side.value)];
  for (auto& side : difference.sides) {
    auto text = shown(side.value);
    if (counts.at(text) > 1) text += concat(" (", sha256(side.value).substr(0, 8), ')');
    side.value = std::move(text);
  }
}

/// Adds one difference per key of the config. Keys and sections in `free` are left out unless they change the function.
/// Runs of other methods do not have the options of a method.
void add_keys(std::vector<Difference>& all, const Runs& runs, std::span<const std::string> free) {
  SettingsOfRuns settings;
  for (const auto& [run, label] : runs) settings.emplace(run, records::compared_settings(*run));
  for (const auto& key : keys_of(settings)) {
    const bool changes_function = fed::effect_of(key) == fed::KeyEffect::kFunction;
    if (!changes_function && lies_in_any(key, free)) continue;
    const bool of_method = records::is_in_section(key, "method");
    add(all, key, changes_function, runs, [&](const records::RunRecords& run) -> std::optional<std::string> {
      const auto& values = settings.at(&run);
      if (of_method && !records::is_in_section(key, "method." + run.method)) return std::nullopt;
      const auto found = values.find(key);
      return found == values.end() ? "not there" : found->second;
    });
    if (!all.empty() && all.back().what == key) shorten(all.back());
  }
}

/// Returns after which round the run was scored: "all rounds", "round 2 of 6".
std::string scored_after(const records::RunRecords& run) {
  const auto last = run.last_evaluated();
  if (last < 0) return "nothing is evaluated";
  if (run.lacks_final_scores()) return concat("round ", last, " of ", run.total_rounds, ", unfinished");
  if (run.stopped_early) return concat("round ", last, ", stopped early");
  return "all rounds";
}

/// Returns the seeds of the arm of every run.
std::map<const records::RunRecords*, std::string> seeds_by_run(const Runs& runs) {
  std::map<config::Values, std::vector<const records::RunRecords*>> arms;
  for (const auto& [run, label] : runs) arms[records::settings_of_arm(*run)].push_back(run);
  std::map<const records::RunRecords*, std::string> all;
  for (const auto& [settings, of_arm] : arms) {
    std::set<int64_t> seeds;
    for (const auto* run : of_arm) seeds.insert(run->seed);
    for (const auto* run : of_arm) all.emplace(run, join(seeds));
  }
  return all;
}

/// Adds what changes the function by what the runs did.
void add_functions(std::vector<Difference>& all, const Runs& runs) {
  add(all, "compute_dtype", true, runs, arithmetic_of);
  add(all, "dtype of the base", true, runs, [](const auto& run) { return plain_value(run, "model.dtype"); });
  add(all, "gating", true, runs, gating_of);
  add(all, "K in training", true, runs, training_top_k_of);
  add(all, "LoRA scale in training", true, runs, lora_scales_of);
  add_files(all, "model files", runs, true);
}

std::vector<Labelled> labelled(std::span<const records::RunRecords> runs) {
  std::vector<Labelled> all;
  for (const auto& run : runs) all.push_back({&run, run.label});
  return all;
}

std::vector<Labelled> labelled_by_arm(const StudyRuns& study, std::optional<int64_t> seed = std::nullopt) {
  std::vector<Labelled> all;
  for (const auto& run : study.runs)
    if (run.records && run.missing.empty() && run.seed == seed.value_or(run.seed))
      all.push_back({&*run.records, run.arm});
  return all;
}

/// Returns the runs of the seeds that every arm with runs has, by seed: what is compared in pairs. All runs if there is
/// no such seed.
std::vector<Labelled> paired_runs(const StudyRuns& study) {
  const auto all = labelled_by_arm(study);
  std::set<std::string> arms;
  for (const auto& [run, arm] : all) arms.insert(arm);
  std::vector<Labelled> paired;
  for (const int64_t seed : study.seeds) {
    const auto of_seed = labelled_by_arm(study, seed);
    if (of_seed.size() == arms.size()) paired.insert(paired.end(), of_seed.begin(), of_seed.end());
  }
  return paired.empty() ? all : paired;
}

/// Adds for each method in Python whether its runs had one source.
void add_method_sources(std::vector<Difference>& all, const Runs& runs) {
  std::set<std::string> methods;
  for (const auto& [run, label] : runs) methods.insert(run->method);
  for (const auto& method : methods)
    add(all, "source of " + method, false, runs, [&](const records::RunRecords& run) -> std::optional<std::string> {
      if (run.method != method || !run.manifest.is_object() || !run.manifest.contains("method")) return std::nullopt;
      return text_at(run.manifest, {"method", "sha256"}).substr(0, 12);
    });
}

std::vector<Difference> all_differences(const Runs& runs, std::span<const std::string> free) {
  std::vector<Difference> all;
  if (runs.size() < 2) return all;
  add(all, "scored after", false, runs, scored_after);
  add_keys(all, runs, free);
  add_functions(all, runs);
  add_method_sources(all, runs);
  add(all, "threads", false, runs, [](const auto& run) { return plain_value(run, "threads"); });
  const auto seeds = seeds_by_run(runs);
  add(all, "seeds", false, runs, [&](const auto& run) { return seeds.at(&run); });
  add(all, "client profiles", false, runs, profiles_of);
  add(all, "processor", false, runs, [](const auto& run) { return text_at(run.manifest, {"machine", "processor"}); });
  add(all, "torch", false, runs, [](const auto& run) { return text_at(run.manifest, {"libraries", "torch"}); });
  add(all, "program", false, runs, program_of);
  add_files(all, "data files", runs, false);
  add(all, "questions", false, runs, rows_of);
  return all;
}

}  // namespace

const Difference::Side* Difference::side_of(const std::string& label) const {
  const auto found = std::find_if(sides.begin(), sides.end(), [&](const Side& side) {
    return std::find(side.runs.begin(), side.runs.end(), label) != side.runs.end();
  });
  return found == sides.end() ? nullptr : &*found;
}

std::vector<Difference> differences(std::span<const records::RunRecords> runs, std::span<const std::string> free) {
  const auto all = labelled(runs);
  return all_differences({all}, free);
}

std::vector<Difference> differences(const StudyRuns& study) {
  const auto all = labelled_by_arm(study);
  return all_differences({all}, study.free);
}

std::vector<Difference> function_differences(const StudyRuns& study) {
  const auto paired = paired_runs(study);
  const Runs runs{paired, true};
  std::vector<Difference> all;
  add_functions(all, runs);
  add_keys(all, runs, {});
  std::erase_if(all, [](const Difference& difference) { return !difference.changes_function; });
  return all;
}

std::string sides_text(const Difference& difference) {
  std::vector<std::string> sides;
  for (const auto& side : difference.sides) sides.push_back(concat(side.value, " (", join(side.runs), ')'));
  return join(sides, "; ");
}

std::string top_ks_text(const std::map<double, int64_t>& by_budget) { return by_budget_text(by_budget); }

}  // namespace evenkeel::comparison
