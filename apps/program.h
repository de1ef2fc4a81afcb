/// \file  The program as one function: for the main() of evenkeel, and for programs that bring methods or families of
/// their own (docs/tutorial-new-method.md, docs/tutorial-new-family.md).
#pragma once

namespace evenkeel {

/// Parses argv and does what one sub-command says; an error ends in one line on stderr. \return the exit code: 0 done,
/// 1 the input is wrong or the output cannot be written (apps/output.h), 2 our fault, 130 interrupted with the state
/// saved.
int run_program(int argc, char** argv);
/// run_program(), then the end of the process without destroying what is static: to take LibTorch down takes longer
/// than most short commands do.
[[noreturn]] void run_and_exit(int argc, char** argv);

}  // namespace evenkeel
