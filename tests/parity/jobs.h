/// \file  Implements the job loop of programs that parity tests drive (jobs.py). Each program runs for a whole test
/// file, because starting LibTorch takes longer than most jobs.
#pragma once

#include <exception>
#include <functional>
#include <iostream>
#include <string>

#include "base/plain/files.h"

namespace evenkeel {

/// Reads names of job files from stdin, one per line, and runs each. Answers with a line on stdout: empty, or the error
/// message. \return the exit code.
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
