/// \file  Reads from the records of a run what it computed: the keys of its config, and its input files.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "records/run_records.h"

namespace evenkeel::records {

/// TOML values by full key, such as "data.files.split_seed".
using Settings = std::map<std::string, std::string>;

/// Settings of a run that determine its figures, apart from its method and training.
struct RunSettings {
  Settings values;
  bool complete = true;  ///< false: as written, perhaps by another version with other keys
};

/// Returns the keys in which runs of a comparison must not differ. These are all keys without name, seed, [output],
/// [method] and [train], but with train.rounds. Left out are keys that have no effect on figures, and those that
/// differences() names in its own words, such as threads. Ranks are left out where they follow from method and budgets.
/// \param as_written  take the keys as they are in the run folder, with all ranks
RunSettings settings_of(const RunRecords& run, bool as_written = false);

/// Returns true if a key of a config is a section or lies in it: "data.limit" is in "data" and in "data.limit", not in
/// "data.lim"; "clients.client[0].budget" is in "clients.client".
bool is_in_section(std::string_view key, std::string_view section);

/// Fingerprints of a run's input files by file name.
using Fingerprints = std::map<std::string, std::string>;
/// Returns the fingerprints of the files of the base model, or of the data and other files.
Fingerprints input_files(const RunRecords& run, bool of_models);

/// Returns what determines which rows a run scores, by key: settings, and "file NAME" for data files.
Settings test_rows_of(const RunRecords& run);
/// Returns the first key in which two sets of settings differ; nothing if they are equal.
std::optional<std::string> differing_key(const Settings& one, const Settings& other);

}  // namespace evenkeel::records
