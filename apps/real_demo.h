/// \file  The demo on a trained language model: four organisations of a made-up town teach it what only they know.
#pragma once

#include <filesystem>

namespace evenkeel::apps {

/// Runs configs/smollm2/four-organisations.toml, and prints how many questions are answered right before and after, and
/// some answers. Takes two to five minutes on two cores and 1.5 GiB of memory.
/// \param model  folder of SmolLM2-135M-Instruct, or of another model with a chat template
/// \param run    the run folder, new
/// \throws as fed::begin_run() and fed::complete_run()
void run_real_demo(const std::filesystem::path& model, const std::filesystem::path& run);

}  // namespace evenkeel::apps
