/// \file  Compiles the CUDA kernels at run time with NVRTC, the compiler library of CUDA. It needs neither a GPU nor
/// CUDA's headers.
#pragma once

#include <memory>
#include <string>

namespace evenkeel::nn::cuda {

/// The NVRTC of this machine. Threads: any.
class Nvrtc {
 public:
  /// Opens libnvrtc. If EVENKEEL_NVRTC is set, it must name the folder. Otherwise the dynamic linker looks the library
  /// up, then the Python packages beside LibTorch are searched. \throws kConfig saying what to install
  Nvrtc();

  /// Returns the version, e.g. "13.0".
  const std::string& version() const { return version_; }
  /// Returns the path of the library.
  const std::string& file() const { return file_; }
  /// Compiles all kernels. \param architecture  architecture of the GPU, e.g. "sm_90" \return the bytes of the cubin
  /// \throws kConfig when the library is incomplete or too old for the architecture; kInternal when it refuses the
  /// sources
  std::string compile(const std::string& architecture) const;

 private:
  struct Functions;

  std::shared_ptr<const Functions> functions_;
  std::string file_, version_;
};

/// Returns the SHA-256 of the sources of all kernels.
const std::string& sources_digest();

}  // namespace evenkeel::nn::cuda
