#include "records/run_settings.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

#include "base/format/fingerprint.h"
#include "base/plain/files.h"
#include "fed/config/key_effects.h"
#include "fed/store/moved_rows.h"

namespace evenkeel::records {
namespace {

/// Keys that determine test rows and which of them have an answer with a likelihood, besides [data].
constexpr std::array<std::string_view, 3> kOfTestRows = {"evaluate.limit", "evaluate.likelihood",
                                                         "evaluate.max_new_tokens"};
/// Keys and sections of [data] that do not select test rows.
constexpr std::array<std::string_view, 6> kNotOfTestRows = {"data.limit",         "data.cutoff", "data.mask_prompt",
                                                            "data.chat_template", "data.date",   "data.partition"};

constexpr std::string_view kFile = "file ";  // before the name of a data file, as a key of test_rows_of()

bool is_in_any(std::string_view key, std::span<const std::string_view> sections) {
  return std::any_of(sections.begin(), sections.end(), [&](auto section) { return is_in_section(key, section); });
}

/// Replaces the path of a chat template by the content of the run's copy.
void read_template(const RunRecords& run, config::Values& values) {
  const auto copy = run.folder / "chat_template.jinja";
  const auto found = values.find("data.chat_template");
  if (!run.folder.empty() && found != values.end() && path_exists(copy))
    found->second = sha256(read_file(copy)).substr(0, 12);
}

/// Returns the text under the first of the keys that a manifest entry has; "not known" if it has none.
std::string text_under(const Json& file, std::initializer_list<std::string_view> keys) {
  for (const auto key : keys)
    if (file.is_object() && file.contains(key) && file.at(key).is_string()) return file.at(key).get<std::string>();
  return "not known";
}

/// Returns the folder of the base model, whose files a manifest lists first; nothing if there is no model.
std::optional<fs::path> model_folder(const Json& files) {
  for (const auto& file : files) {
    const fs::path path = text_under(file, {"path"});
    if (path.filename() == "config.json") return path.parent_path();
  }
  return std::nullopt;
}

bool selects_test_rows(std::string_view key) {
  const bool of_client = key.starts_with("clients.client[") &&
                         (key.ends_with("].data") || key.ends_with("].test") || key.ends_with("].held_out"));
  return of_client || is_in_any(key, kOfTestRows) || (is_in_section(key, "data") && !is_in_any(key, kNotOfTestRows));
}

/// Returns true if a list of paths holds the path.
bool lists(const std::string& list, const std::string& path) { return list.find(concat('"', path, '"')) != list.npos; }

/// Removes what does not select test rows because a set has test files of its own: its training files and their split.
/// \return the lists of these training files
std::string take_training(config::Values& rows) {
  std::string trained;
  for (const auto& [key, value] : config::Values(rows)) {
    if (!key.starts_with("data.files.") || !key.ends_with(".test") || value == "[]") continue;
    const auto set = key.substr(0, key.size() - std::string_view("test").size());
    if (const auto train = rows.find(set + "train"); train != rows.end()) trained += train->second;
    for (const auto* name : {"train", "held_out", "split_seed"}) rows.erase(set + name);
  }
  return trained;
}

struct InputFile {
  fs::path path;  // at the beginning of the run
  std::string fingerprint;
};

/// Returns the files that the manifest lists in the folder of the base model, or all others.
std::vector<InputFile> listed_files(const RunRecords& run, bool of_models) {
  std::vector<InputFile> found;
  if (!run.manifest.is_object() || !run.manifest.contains("files")) return found;
  const auto folder = model_folder(run.manifest.at("files"));
  for (const auto& file : run.manifest.at("files")) {
    const fs::path path = text_under(file, {"path"});
    if ((folder && path.parent_path() == *folder) == of_models)
      found.push_back({path, text_under(file, {kTreeDigest, kWholeDigest}).substr(0, 12)});
  }
  return found;
}

/// Adds the fingerprint of a further file to those of files with the same name.
void join_to(std::string& all, const std::string& fingerprint) { all += concat(all.empty() ? "" : "+", fingerprint); }

}  // namespace

bool is_in_section(std::string_view key, std::string_view section) {
  if (!key.starts_with(section)) return false;
  return key.size() == section.size() || key[section.size()] == '.' || key[section.size()] == '[';
}

config::Values compared_settings(const RunRecords& run) {
  auto settings = run.settings;
  std::erase_if(settings, [](const auto& entry) {
    const auto effect = fed::effect_of(entry.first);
    return effect != fed::KeyEffect::kSetting && effect != fed::KeyEffect::kFunction &&
           effect != fed::KeyEffect::kTraining;
  });
  read_template(run, settings);
  return settings;
}

config::Values settings_of_arm(const RunRecords& run) {
  auto settings = run.settings;
  std::erase_if(settings, [](const auto& entry) {
    const auto effect = fed::effect_of(entry.first);
    return effect == fed::KeyEffect::kSeed || effect == fed::KeyEffect::kNone;
  });
  return settings;
}

Fingerprints input_files(const RunRecords& run, bool of_models) {
  Fingerprints found;
  for (const auto& [path, fingerprint] : listed_files(run, of_models))
    join_to(found[path.filename().string()], fingerprint);
  return found;
}

config::Values test_rows_of(const RunRecords& run) {
  auto rows = compared_settings(run);
  std::erase_if(rows, [](const auto& entry) { return !selects_test_rows(entry.first); });
  const auto trained = take_training(rows);
  config::Values files;
  for (const auto& [path, fingerprint] : listed_files(run, false)) {
    const auto now = fed::place_now(run.folder, path.string());  // as in the settings
    const bool is_named =
        std::any_of(rows.begin(), rows.end(), [&](const auto& entry) { return lists(entry.second, now); });
    if (is_named || !lists(trained, now)) join_to(files[concat(kFile, path.filename().string())], fingerprint);
  }
  rows.merge(files);
  return rows;
}

std::optional<std::string> differing_key(const config::Values& one, const config::Values& other) {
  for (const auto& [key, value] : one)
    if (const auto found = other.find(key); found == other.end() || found->second != value) return key;
  for (const auto& [key, value] : other)
    if (!one.contains(key)) return key;
  return std::nullopt;
}

}  // namespace evenkeel::records
