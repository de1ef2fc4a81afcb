#include "study/definition/study_file.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "base/plain/text.h"

namespace evenkeel::study {
namespace {

constexpr size_t kMostArms = 1000;

void check_seed_list(const config::Table& table, const std::vector<int64_t>& seeds) {
  table.check(!seeds.empty(), "seeds", "empty", "one seed or more");
  std::set<int64_t> known;
  for (const int64_t seed : seeds) {
    table.check_entry(seed >= 0, "seeds", seed, "0 or more");
    table.check_entry(known.insert(seed).second, "seeds", concat(seed, " twice"), "every seed once");
  }
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Checks that the names of arms differ in more than case, because some file systems ignore case.
void check_arm_names(const config::Table& table, const std::vector<ArmSection>& arms) {
  std::set<std::string> known;
  const auto entries = table.tables("arm");
  for (size_t i = 0; i < arms.size(); ++i) {
    const auto& name = arms[i].name;
    entries[i].check(is_arm_name(name), "name", concat('"', shown(name), '"'),
                     "up to 80 letters, digits, - and _, dots between digits");
    entries[i].check(known.insert(lower_case(name)).second, "name", concat('"', name, "\" twice"),
                     "different names, not in case alone");
  }
}

}  // namespace

void StudySection::resolve(const config::Table& table) {
  const bool plain_name = name.find('/') == std::string::npos && !name.starts_with('.');
  table.check(plain_name, "name", concat('"', shown(name), '"'), "a file name without /, not starting with a dot");
  table.check(!base.empty(), "base", "empty", "the config that every run starts from");
  check_seed_list(table, seeds);
  table.check(!arm.empty(), "arm", "empty", "one [[study.arm]] or more");
  table.check(arm.size() <= kMostArms, "arm", concat("a list of ", arm.size()), concat("up to ", kMostArms));
  const auto runs = static_cast<int64_t>(arm.size() * seeds.size());
  table.check(runs <= kMostRuns, "seeds", concat(seeds.size(), " long, ", runs, " runs with ", arm.size(), " arms"),
              concat("up to ", kMostRuns, " runs"));
  check_arm_names(table, arm);
  if (reference.empty()) reference = arm.front().name;
  std::vector<std::string> known;
  for (const auto& one : arm) known.push_back(one.name);
  table.check(std::find(known.begin(), known.end(), reference) != known.end(), "reference",
              concat('"', shown(reference), '"'), concat("the name of an arm: ", join(known)));
}

StudyFile StudyFile::load(const fs::path& file) {
  check_path_text(file.string(), "STUDY.toml");
  StudyFile read;
  config::read(config::Table::load(file), read);
  read.base = (file.parent_path() / expand_home(read.study.base, "study.base")).lexically_normal();
  if (read.study.name.empty()) read.study.name = file.stem().string();
  return read;
}

std::string StudyFile::text(const std::string& other_base) const {
  StudyFile copy = *this;
  copy.study.base = other_base;
  return config::write(copy);
}

std::vector<Arm> StudyFile::arms() const {
  std::vector<Arm> arms;
  for (const auto& arm : study.arm) arms.push_back({arm.name, arm.set, {}});
  return arms;
}

}  // namespace evenkeel::study
