/// \file  Replaces "~" at the start of the paths on the command line. A shell does so for a word that begins with "~",
/// but not for "--out=~/runs" or for a word in quotes, and other programs that start this one do not.
#pragma once

#include <CLI/CLI.hpp>

namespace evenkeel::apps {

/// Makes every option of `program` and of its commands that takes a path replace "~" (base/plain/data_path.h). Call it
/// after all options are added. Parsing then throws for "~user" and for an empty --out, naming the option.
void expand_home_in_paths(CLI::App& program);

}  // namespace evenkeel::apps
