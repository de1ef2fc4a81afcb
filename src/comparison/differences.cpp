#include "comparison/differences.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>

#include "base/format/config_table.h"
#include "base/plain/files.h"
#include "base/plain/text.h"
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

std::string config_text(const records::RunRecords& run, const char* table, const char* key) {
  return config::Table::parse(run.config, run.label).table(table).string(key).value_or(std::string(kUnknown));
}

/// Returns the arithmetic, with the kernels if they were measured: "measured: own own widen ...".
std::string arithmetic_of(const records::RunRecords& run) {
  auto text = config_text(run, "model", "compute_dtype");
  const auto products = config::Table::parse(run.config, run.label).table("model").table("products");
  for (const auto& list : products.keys())
    for (const auto& kernel : products.strings(list).value_or(std::vector<std::string>()))
      text += concat(text.find(' ') == text.npos ? ": " : " ", kernel);
  return text;
}

std::string threads_of(const records::RunRecords& run) {
  const auto threads = config::Table::parse(run.config, run.label).integer("threads");
  return threads ? std::to_string(*threads) : std::string(kUnknown);
}

std::string program_of(const records::RunRecords& run) {
  return concat(text_at(run.manifest, {"version"}), ", git ", text_at(run.manifest, {"git"}).substr(0, 12));
}

/// Returns what the run did, not the names in its config, because a checkpoint may renormalise by itself.
std::string gating_of(const records::RunRecords& run) {
  if (run.rounds.empty() || !run.rounds.back().gates_sum_to_one) return std::string(kUnknown);
  return *run.rounds.back().gates_sum_to_one ? "renormalised" : "not renormalised";
}

/// Returns the numbers of questions and rows of each task: "boolq 100, obqa 98 in 100".
std::string rows_of(const records::RunRecords& run) {
  std::map<std::string, std::string> counts;
  for (const auto& score : run.scores(run.last_evaluated()))
    counts[score.task] = score.questions == score.rows ? std::to_string(score.rows)
                         : score.questions > 0         ? concat(score.questions, " in ", score.rows)
                                                       : concat("? in ", score.rows);
  std::vector<std::string> all;
  for (const auto& [task, count] : counts) all.push_back(concat(task, ' ', count));
  return all.empty() ? "nothing is evaluated" : join(all);
}

/// Replaces renamed keys of simulated time in a line of a settled config by their newest names.
std::string newest(std::string line) {
  constexpr std::array<std::array<std::string_view, 2>, 3> kRenamed{
      {{"[devices", "[client_profiles"}, {"[clients.devices", "[clients.profiles"}, {"devices =", "profiles ="}}};
  for (const auto& [before, now] : kRenamed)
    if (line.starts_with(before)) line.replace(0, before.size(), now);
  return line;
}

/// Returns the lines of a settled config that determine simulated time.
std::string profile_lines(const records::RunRecords& run) {
  std::istringstream lines(run.config);
  std::string result, section;
  for (std::string line; std::getline(lines, line);) {
    line = newest(std::move(line));
    if (line.starts_with('[')) section = line;
    const bool of_clients = section == "[clients]" && (line.starts_with("profiles") || line.starts_with("deadline") ||
                                                       line.starts_with("quorum"));
    if (of_clients || section.starts_with("[client_profiles") || section.starts_with("[clients.profiles"))
      result += line + '\n';
  }
  return result;
}

/// Returns the names of the client profiles and a fingerprint of their keys: "box, phone (1a2b3c4d)".
std::string profiles_of(const records::RunRecords& run) {
  if (run.rounds.empty() || !run.rounds.back().simulated) return "no simulated time";
  const auto profiles = config::Table::parse(profile_lines(run), run.label).table("client_profiles");
  std::vector<std::string> names = profiles.keys();
  std::erase_if(names, [&](const std::string& key) { return !profiles.holds_table(key); });
  return concat(join(names), " (", sha256(profile_lines(run)).substr(0, 8), ")");
}

template <typename Value>
void add(std::vector<Difference>& all, std::string what, std::span<const records::RunRecords> runs,
         const Value& value) {
  Difference found{std::move(what), {}};
  for (const auto& run : runs) {
    const std::string text = value(run);
    auto side =
        std::find_if(found.sides.begin(), found.sides.end(), [&](const auto& one) { return one.value == text; });
    if (side == found.sides.end()) side = found.sides.insert(side, {text, {}});
    side->runs.push_back(run.label);
  }
  if (found.sides.size() > 1) all.push_back(std::move(found));
}

/// Returns the names of files that differ or are missing in some run.
std::set<std::string> unlike_files(std::span<const records::RunRecords> runs, bool of_models) {
  std::map<std::string, std::set<std::string>> fingerprints;
  std::map<std::string, size_t> holders;
  for (const auto& run : runs)
    for (const auto& [name, fingerprint] : records::input_files(run, of_models)) {
      fingerprints[name].insert(fingerprint);
      ++holders[name];
    }
  std::set<std::string> names;
  for (const auto& [name, different] : fingerprints)
    if (different.size() > 1 || holders.at(name) < runs.size()) names.insert(name);
  return names;
}

void add_files(std::vector<Difference>& all, const char* what, std::span<const records::RunRecords> runs,
               bool of_models) {
  const auto names = unlike_files(runs, of_models);
  add(all, what, runs, [&](const records::RunRecords& run) {
    const auto own = records::input_files(run, of_models);
    std::vector<std::string> texts;
    for (const auto& name : names) texts.push_back(concat(name, ' ', own.contains(name) ? own.at(name) : "not there"));
    return join(texts);
  });
}

/// Returns the keys that differ between runs. A key that only some runs have counts if all configs can be compared in
/// the form of this version.
std::set<std::string> unlike_keys(std::span<const records::RunSettings> settings) {
  const bool complete = std::all_of(settings.begin(), settings.end(), [](const auto& one) { return one.complete; });
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, size_t> holders;
  for (const auto& one : settings)
    for (const auto& [key, value] : one.values) {
      values[key].insert(value);
      ++holders[key];
    }
  std::set<std::string> keys;
  for (const auto& [key, different] : values) {
    const bool everywhere = holders.at(key) == settings.size();
    if (everywhere ? different.size() > 1 : complete) keys.insert(key);
  }
  return keys;
}

/// Returns the settings of all runs in one form: as written if this version cannot read some config.
std::vector<records::RunSettings> settings_of_all(std::span<const records::RunRecords> runs) {
  std::vector<records::RunSettings> settings;
  for (const auto& run : runs) settings.push_back(records::settings_of(run));
  if (std::all_of(settings.begin(), settings.end(), [](const auto& one) { return one.complete; })) return settings;
  settings.clear();
  for (const auto& run : runs) settings.push_back(records::settings_of(run, true));
  return settings;
}

/// Adds one difference per key of the config, without the keys and sections in `free`.
void add_keys(std::vector<Difference>& all, std::span<const records::RunRecords> runs,
              std::span<const std::string> free) {
  const auto settings = settings_of_all(runs);
  for (const auto& key : unlike_keys(settings)) {
    if (std::any_of(free.begin(), free.end(),
                    [&](const auto& section) { return records::is_in_section(key, section); }))
      continue;
    add(all, key, runs, [&](const records::RunRecords& run) {
      const auto& values = settings[static_cast<size_t>(&run - runs.data())].values;
      const auto found = values.find(key);
      return found == values.end() ? "not there" : shown(found->second);
    });
  }
}

/// Returns after which round the run was scored: "all rounds", "round 2 of 6".
std::string scored_after(const records::RunRecords& run) {
  const auto last = run.last_evaluated();
  if (last < 0) return "nothing is evaluated";
  if (run.is_unfinished()) return concat("round ", last, " of ", run.rounds_to_do, ", unfinished");
  if (run.stopped_early) return concat("round ", last, ", stopped early");
  return run.rounds_to_do > 0 ? "all rounds" : concat("round ", last);
}

/// Returns the settled config without what differs between repeats of an experiment arm: name, seed and folder.
std::string arm_of(const records::RunRecords& run) {
  std::istringstream lines(run.config);
  std::string arm, section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) section = line;
    const bool own = section.empty() && (line.starts_with("name =") || line.starts_with("seed ="));
    if (!own && section != "[output]") arm += line + '\n';
  }
  return arm;
}

/// Returns the seeds of the runs of this run's experiment arm.
std::string seeds_of(std::span<const records::RunRecords> runs, const records::RunRecords& run) {
  std::set<int64_t> seeds;
  for (const auto& other : runs)
    if (arm_of(other) == arm_of(run)) seeds.insert(other.seed);
  return join(seeds);
}

}  // namespace

std::vector<Difference> differences(std::span<const records::RunRecords> runs, std::span<const std::string> free) {
  std::vector<Difference> all;
  if (runs.size() < 2) return all;
  add(all, "scored after", runs, scored_after);
  add_keys(all, runs, free);
  add(all, "compute_dtype", runs, arithmetic_of);
  add(all, "dtype of the base", runs, [](const auto& run) { return config_text(run, "model", "dtype"); });
  add(all, "threads", runs, threads_of);
  add(all, "seeds", runs, [&](const auto& run) { return seeds_of(runs, run); });
  add(all, "gating", runs, gating_of);
  add(all, "client profiles", runs, profiles_of);
  add(all, "processor", runs, [](const auto& run) { return text_at(run.manifest, {"machine", "processor"}); });
  add(all, "torch", runs, [](const auto& run) { return text_at(run.manifest, {"libraries", "torch"}); });
  add(all, "program", runs, program_of);
  add_files(all, "model files", runs, true);
  add_files(all, "data files", runs, false);
  add(all, "questions", runs, rows_of);
  return all;
}

}  // namespace evenkeel::comparison
