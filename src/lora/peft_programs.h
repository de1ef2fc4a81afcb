/// \file  Says which versions of PEFT apply all factors of an adapter folder. Source:
/// tests/parity/test_what_peft_reads.py and test_what_peft_reads_v5.py load every kind of folder and compare logits.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lora/peft.h"

namespace evenkeel::lora {

/// The versions that the tests run.
enum class PeftVersion : uint8_t {
  k017,  ///< transformers 4.57 + PEFT 0.17
  k021,  ///< transformers 5 + PEFT 0.21
};
/// Returns "transformers 4.57 + PEFT 0.17" and the like.
std::string_view program_name(PeftVersion version);

/// The properties of an adapter folder that decide what PEFT makes of it.
struct PeftFolder {
  PeftFamily family = PeftFamily::kUntried;
  PeftLayout layout = PeftLayout::kPerExpert;
  std::set<std::string> sites{};  ///< sites with factors in the folder, as written_sites() returns them
};

/// Returns why a version does not apply all factors of a folder: it refuses the folder, it leaves factors out, or no
/// test has tried it. Empty: it applies all.
/// \param sites  all sites of the model
std::string why_not_whole(PeftVersion version, const PeftFolder& folder, const Sites& sites);

/// Returns "PROGRAM (run): not readable there (REASON)". All messages of this kind use it.
/// \param was_run  false: the program was not run, only its source was read
std::string not_readable(std::string_view program, bool was_run, std::string_view reason);

/// Returns not_readable() for each version that does not apply all factors of a folder in the standard layout, as
/// adapter/ of a run is. Empty for a family that no test has tried.
/// \param adapted  the sites with an adapter
std::vector<std::string> not_readable_in_peft(PeftFamily family, const std::set<std::string>& adapted,
                                              const Sites& sites);

}  // namespace evenkeel::lora
