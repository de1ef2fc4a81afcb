/// \file  Defines the flag --progress, which train and evaluate share.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <string>

#include "apps/model_options.h"

namespace evenkeel::apps {

/// Selects how a command reports its progress.
enum class ProgressForm {
  kText,  ///< a text line on stderr
  kJson,  ///< JSON events on stdout, which gets no other output (base/system/events.h)
};
constexpr auto names(ProgressForm) {
  return std::array{config::EnumName<ProgressForm>{"text", ProgressForm::kText},
                    config::EnumName<ProgressForm>{"json", ProgressForm::kJson}};
}

/// Adds --progress. Its value is stored in `form`, which must hold the default "text" or "json" before the call and
/// must outlive the parsing.
inline void add_progress_flag(CLI::App& command, std::string& form) {
  command
      .add_option("--progress", form,
                  "text, or json: events as JSON lines on stdout, in the place of the table (docs/json-lines.md)")
      ->capture_default_str();
}

/// Returns true if `form` is "json". \throws kConfig for any other value than "text" and "json"
inline bool wants_events(const std::string& form) {
  return parse_enum<ProgressForm>("--progress", form) == ProgressForm::kJson;
}

}  // namespace evenkeel::apps
