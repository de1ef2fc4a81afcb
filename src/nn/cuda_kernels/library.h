/// \file  Opens shared libraries of CUDA at run time. The program is built without CUDA's headers, so the few functions
/// that it uses are declared where they are used.
#pragma once

#include <filesystem>
#include <string>

#include "base/plain/error.h"

namespace evenkeel::nn::cuda {

/// A shared library, which stays loaded as long as the program. Cheap to copy.
class Library {
 public:
  /// Opens a library. \param name  a file name, which the dynamic linker looks up, or a path
  /// \return an object that is not set if there is no such library
  static Library open(const std::string& name);

  bool is_set() const { return handle_ != nullptr; }
  /// Returns the file that the library was loaded from. \param function  the name of one of its functions
  std::filesystem::path file(const char* function) const;
  /// Returns a function. \throws kConfig naming library and function where the library lacks it
  template <typename F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(address(name));
  }

 private:
  void* address(const char* name) const;

  void* handle_ = nullptr;
  std::string name_{};
};

}  // namespace evenkeel::nn::cuda
