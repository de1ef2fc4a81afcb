/// \file  Declares the program as a function, for the main() of evenkeel and of programs that add their own methods or
/// model families (docs/tutorial-new-method.md, docs/tutorial-new-family.md).
#pragma once

namespace evenkeel::apps {

/// Parses argv and runs one sub-command. Prints an error as one line on stderr.
/// \return the exit code: 0 success; 1 invalid input or unwritable output (apps/output.h); 2 internal error; 130
/// interrupted with the state saved
int run_program(int argc, char** argv);
/// Calls run_program() and exits without destroying static objects, because shutting LibTorch down takes longer than
/// most short commands.
[[noreturn]] void run_and_exit(int argc, char** argv);

}  // namespace evenkeel::apps
