/// \file  Keeps compiled kernels on disk, so that NVRTC runs once per machine and version.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace evenkeel::nn::cuda {

/// Identifies one compilation of the kernels.
struct CubinKey {
  std::string sources;       ///< sources_digest()
  std::string architecture;  ///< "sm_90"
  std::string compiler;      ///< version of NVRTC

  std::string text() const { return sources + " " + architecture + " nvrtc-" + compiler; }
};

/// Returns the kernels of `key` from a file of `folder`, or compiles and stores them. The file begins with its key and
/// the SHA-256 of its content; a damaged file, or a file of another key, is ignored and replaced. If the folder cannot
/// be written, a warning is logged. Several processes may use one folder at the same time.
/// \param folder  empty: nothing is stored \param compile  returns the bytes \throws what `compile` throws
std::string cached_cubin(const std::filesystem::path& folder, const CubinKey& key,
                         const std::function<std::string()>& compile);

}  // namespace evenkeel::nn::cuda
