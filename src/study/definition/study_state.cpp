#include "study/definition/study_state.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "base/format/record.h"
#include "base/plain/files.h"
#include "base/plain/sealed.h"
#include "base/plain/text.h"

namespace evenkeel::study {
namespace {

constexpr size_t kLongestName = 80;
constexpr size_t kMostState = size_t{64} << 20;  // bytes of study.json, to read a foreign one no further

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Returns true for the dot in "rho-0.3", but not in "study.json", so that no arm has the name of a file of the study.
bool is_dot_between_digits(std::string_view name, size_t at) {
  return name[at] == '.' && at > 0 && at + 1 < name.size() && is_digit(name[at - 1]) && is_digit(name[at + 1]);
}

void check_arms(const JsonView& view, const StudyState& state) {
  std::set<std::string_view> known;
  for (const auto& arm : state.arms)
    view.at("arms").require(is_arm_name(arm.name) && known.insert(arm.name).second, " names \"", shown(arm.name),
                            "\", expected different names of letters, digits, - and _");
  view.at("reference")
      .require(known.contains(state.reference), " is \"", shown(state.reference), "\", which is no arm");
}

void check_seeds(const JsonView& view, const StudyState& state) {
  const std::set<int64_t> seeds(state.seeds.begin(), state.seeds.end());
  view.at("seeds").require(!seeds.empty() && seeds.size() == state.seeds.size() && *seeds.begin() >= 0,
                           " holds no seed, one twice or one below 0");
}

/// Checks that there is every arm with every seed, once, in its own folder.
void check_runs(const JsonView& view, const StudyState& state) {
  std::set<std::string> expected;
  for (const auto& arm : state.arms)
    for (const int64_t seed : state.seeds) expected.insert(run_folder_name(arm.name, seed));
  for (const auto& run : view.at("runs").items()) {
    const auto folder = run_folder_name(run.at("arm").string(), run.at("seed").integer(0));
    run.at("folder").require(run.at("folder").string() == folder, " is ", shown(run.at("folder").json()), ", expected ",
                             shown(folder));
    run.require(expected.erase(folder) == 1, ": ", shown(folder),
                " is there twice, or its arm or seed is none of the study's");
  }
  view.at("runs").require(expected.empty(), " lacks ", expected.empty() ? "" : *expected.begin());
}

}  // namespace

std::string StudyRun::label() const { return concat(arm, ":", seed); }

const Arm* StudyState::find_arm(std::string_view name) const {
  const auto found = std::find_if(arms.begin(), arms.end(), [&](const Arm& arm) { return arm.name == name; });
  return found == arms.end() ? nullptr : &*found;
}

const StudyRun* StudyState::find(std::string_view arm, int64_t seed) const {
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const StudyRun& run) { return run.arm == arm && run.seed == seed; });
  return found == runs.end() ? nullptr : &*found;
}

StudyRun* StudyState::find(std::string_view arm, int64_t seed) {
  return const_cast<StudyRun*>(std::as_const(*this).find(arm, seed));
}

int64_t StudyState::count(RunState state) const {
  return std::count_if(runs.begin(), runs.end(), [&](const StudyRun& run) { return run.state == state; });
}

std::string run_folder_name(std::string_view arm, int64_t seed) { return concat(arm, "/seed-", seed); }

bool is_arm_name(std::string_view name) {
  if (name.empty() || name.size() > kLongestName) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && !is_dot_between_digits(name, i))
      return false;
  }
  return name[0] != '-';
}

bool holds_study(const fs::path& folder) {
  const auto file = folder / kStateFile;
  if (!path_exists(file)) return false;
  if (path_exists(folder / kBaseFile)) return true;
  try {
    const Json json = load_json(file, kCheckpoint, {.bytes = kMostState});
    return json.is_object() && json.contains("arms") && json.contains("runs");
  } catch (const Error&) {
    return false;  // not JSON, and nothing of a study beside it
  }
}

StudyState read_state(const fs::path& folder) {
  const auto file = folder / kStateFile;
  EK_CHECK(holds_study(folder), kIo, folder.string(), " holds no study: ", kStateFile,
           path_exists(file) ? " is not that of a study" : " is missing");
  const Json json = read_sealed(file);
  const JsonView view(json, file.string(), kCheckpoint);
  const auto version = view.at("version").integer();
  view.at("version").require(version == kStateVersion, " is ", version, ", this program reads ", kStateVersion);
  auto state = record::read<StudyState>(view);
  check_arms(view, state);
  check_seeds(view, state);
  check_runs(view, state);
  return state;
}

void write_state(const fs::path& folder, const StudyState& state) {
  write_sealed(folder / kStateFile, record::write(state), 1);
}

}  // namespace evenkeel::study
