/// \file  Writes run folders for the tests of records and reports.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/plain/files.h"
#include "base/plain/sealed.h"
#include "fed/store/manifest.h"

namespace evenkeel::testing {

/// Writes config and manifest of a run without rounds into a new folder.
/// \param toml    keys of the config; others have their defaults
/// \param change  changes the manifest before it is written
inline void write_run(const std::filesystem::path& folder, const std::string& toml,
                      const std::function<void(OrderedJson&)>& change = {}) {
  const auto asked = fed::ExperimentConfig::read(config::Table::parse(toml, "test"));
  const auto config = fed::settle(asked, {});
  const auto of_files = config.with(
      [](auto& values) { values.model.path = "builtin:tiny-olmoe"; });  // without files, whatever the config names
  auto manifest = fed::make_manifest(of_files, {}, asked, {});
  manifest["config"] = config->text();
  if (change) change(manifest);
  fs::create_directories(folder);
  write_file_atomic(folder / "config.toml", config->text());
  fed::write_manifest(folder, manifest);
}

}  // namespace evenkeel::testing
