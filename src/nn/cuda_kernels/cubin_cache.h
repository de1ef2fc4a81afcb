/// \file  Keeps compiled kernels on disk, so that NVRTC runs once per machine and version.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace evenkeel::nn::cuda {

/// Names a compiled form of the kernels.
struct CubinKey {
  std::string sources;       ///< sources_digest()
  std::string architecture;  ///< "sm_90"
  std::string compiler;      ///< version of NVRTC

  std::string text() const { return sources + " " + architecture + " nvrtc-" + compiler; }
};

/// Returns the kernels of `key` from a file of `folder`, or compiles and stores them. The file says its key and the
/// SHA-256 of its content; a damaged file and one of another key are ignored and replaced. A folder that cannot be
/// written is reported by one warning. Processes may call at the same time.
/// \param folder  empty: nothing is stored \param compile  returns the bytes \throws what `compile` throws
std::string cached_cubin(const std::filesystem::path& folder, const CubinKey& key,
                         const std::function<std::string()>& compile);

}  // namespace evenkeel::nn::cuda
