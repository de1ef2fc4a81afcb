/// \file  Reads the settings and the input files of a run from its records.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/format/config_values.h"
#include "records/run_records.h"

namespace evenkeel::records {

/// Returns the settings that a comparison names where runs differ in them: keys of KeyEffect::kTraining, kSetting and
/// kFunction (fed/config/key_effects.h). The path of a chat template is replaced by a digest of the run's copy.
config::Values compared_settings(const RunRecords& run);
/// Returns the settings that are equal in all runs of an arm: all keys except KeyEffect::kSeed and kNone.
config::Values settings_of_arm(const RunRecords& run);

/// Returns true if a key of a config is a section or lies in it: "data.limit" is in "data" and in "data.limit", not in
/// "data.lim"; "clients.client[0].budget" is in "clients.client".
bool is_in_section(std::string_view key, std::string_view section);

/// Fingerprints of a run's input files by file name: 12 hexadecimal digits, or "not known"; "+" joins fingerprints of
/// files with equal names.
using Fingerprints = std::map<std::string, std::string>;
/// Returns the fingerprints of a run's input files; none if the manifest lists no files.
/// \param of_models  true: files in the folder of the base model; false: all other files
Fingerprints input_files(const RunRecords& run, bool of_models);

/// Returns the settings and data files that determine which rows a run scores. The key of a data file is "file NAME".
config::Values test_rows_of(const RunRecords& run);
/// Returns the first key in which two sets of settings differ; nothing if they are equal.
std::optional<std::string> differing_key(const config::Values& one, const config::Values& other);

}  // namespace evenkeel::records
