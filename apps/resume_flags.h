/// \file  Defines the flags of a resumed run that train and serve share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "base/plain/error.h"

namespace evenkeel::apps {

/// Adds --from-round. Its value is stored in `round`, which must outlive the parsing.
inline void add_from_round_flag(CLI::App& command, std::optional<int64_t>& round) {
  command.add_option(
      "--from-round", round,
      "with --resume: continue from this round, for when the last one is damaged (the last two are kept; 0: "
      "from the beginning)");
}

/// Checks that --base is given with --resume only. \throws kConfig
inline void check_base_flag(const std::string& base, bool resume) {
  EK_CHECK(base.empty() || resume, kConfig, "--base is ", base,
           ", allowed only together with --resume: model.path names the model of a new run");
}

/// Checks the value of --from-round. \throws kConfig when it is negative or given without --resume
inline void check_from_round(const std::optional<int64_t>& round, bool resume) {
  EK_CHECK(!round || resume, kConfig, "--from-round is ", *round, ", allowed only together with --resume");
  EK_CHECK(round.value_or(0) >= 0, kConfig, "--from-round is ", *round, ", allowed: 0 or more");
}

}  // namespace evenkeel::apps
