/// \file  Warns of programs that do not apply all of the adapter that a run writes.
#pragma once

#include <string_view>

#include "fed/round/server.h"

namespace evenkeel::fed {

/// Logs one warning if a version of PEFT does not apply all factors of the run's adapter folder
/// (lora/peft_programs.h), in the words of `evenkeel export --check`.
/// \param what  the beginning of the line, as in "[train] adapter/ of this run"
void warn_of_readers(const Server& server, std::string_view what);

}  // namespace evenkeel::fed
