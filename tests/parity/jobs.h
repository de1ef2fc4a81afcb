/// \file  What programs that parity tests drive have in common (jobs.py): they stay up for a whole test file, since to
/// start LibTorch takes longer than most jobs do.
#pragma once

#include <exception>
#include <functional>
#include <iostream>
#include <string>

#include "base/plain/files.h"

namespace evenkeel {

/// Reads names of job files from stdin, one a line, runs each, and answers it by a line on stdout: empty, or what went
/// wrong. \return the exit code.
inline int serve_jobs(const std::function<void(const fs::path& job)>& run) {
  for (std::string file; std::getline(std::cin, file);) {
    try {
      run(file);
      std::cout << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error: " << error.what() << std::endl;
    }
  }
  return 0;
}

}  // namespace evenkeel
