/// \file  Provides the temporary folder in which a rank keeps the uploads of its clients.
#pragma once

#include <filesystem>

#include "cluster/options.h"

namespace evenkeel::cluster {

/// Returns the folder that `cluster.scratch` names, which is created, or else the system's temporary folder.
/// \throws kIo naming `cluster.scratch` or TMPDIR when it is no folder or cannot be written
std::filesystem::path scratch_folder(const ClusterOptions& options);

/// A folder of this process inside scratch_folder(). The destructor removes it. The constructor removes the folders
/// that killed processes of this machine left.
class Scratch {
 public:
  /// Creates the folder. \throws as scratch_folder(), and kIo when the folder cannot be created
  explicit Scratch(const ClusterOptions& options);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace evenkeel::cluster
