/// \file  Reads from the records of a run what it computed: the keys of its config, and its input files.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/format/config_values.h"
#include "records/run_records.h"

namespace evenkeel::records {

/// Returns the keys in which runs of a comparison should not differ: those of KeyEffect::kSetting and kFunction
/// (fed/config/key_effects.h). The path of a chat template is replaced by a digest of the run's copy.
config::Values compared_settings(const RunRecords& run);
/// Returns the settings by which runs are one arm: all keys without the seed and keys that have no effect on figures.
config::Values settings_of_arm(const RunRecords& run);

/// Returns true if a key of a config is a section or lies in it: "data.limit" is in "data" and in "data.limit", not in
/// "data.lim"; "clients.client[0].budget" is in "clients.client".
bool is_in_section(std::string_view key, std::string_view section);

/// Fingerprints of a run's input files by file name.
using Fingerprints = std::map<std::string, std::string>;
/// Returns the fingerprints of the files in the folder of the base model, or of all other files.
Fingerprints input_files(const RunRecords& run, bool of_models);

/// Returns what determines which rows a run scores, by key: settings, and "file NAME" for data files.
config::Values test_rows_of(const RunRecords& run);
/// Returns the first key in which two sets of settings differ; nothing if they are equal.
std::optional<std::string> differing_key(const config::Values& one, const config::Values& other);

}  // namespace evenkeel::records
