/// \file  Reads the settled config of a run folder (fed/run/run_folder.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/plain/json.h"
#include "fed/config/run_config.h"
#include "fed/store/run_files.h"

namespace evenkeel::fed {

inline constexpr std::string_view kConfigFile = run_file("config.toml");
/// The run's copy of the file that data.chat_template named.
inline constexpr std::string_view kChatTemplate = run_file("chat_template.jinja");

/// Reads the config of a run.
/// \throws kIo when the folder holds no run; kCheckpoint when the manifest is damaged; kConfig naming the keys that
/// differ when config.toml was edited
RunConfig run_config(const std::filesystem::path& folder);

/// Reads the config of a run, to load its base model. Checks that the base and its tokenizer have not changed since the
/// run was made (check_base() in fed/store/manifest.h).
/// \param base  folder that holds the base model now; empty: where it was when the run began
/// \throws as run_config(); kIo, kData naming the file of the base that is missing, has changed or was added
RunConfig config_with_base(const std::filesystem::path& folder, const std::string& base = {});

/// Returns the absolute folder that --base names.
std::filesystem::path moved_base(const std::string& base);

/// Checks that the file that the run's chat template was copied from is gone or unchanged. \throws kData when it has
/// changed
void check_template_source(const std::filesystem::path& folder, const Json& manifest);

}  // namespace evenkeel::fed
