#include "cluster/scratch.h"

#include <unistd.h>

#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/lock_owner.h"

namespace evenkeel::cluster {
namespace {

/// Removes a folder. Another rank may remove it at the same time.
void remove_folder(const fs::path& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

}  // namespace

fs::path scratch_folder(const ClusterOptions& options) {
  if (options.scratch.empty()) return temporary_folder("cluster.scratch names another");
  try {
    make_folders(options.scratch);
    check_writable_folder(options.scratch);
    return options.scratch;
  } catch (const Error& error) {
    throw error.with_context("cluster.scratch");
  }
}

Scratch::Scratch(const ClusterOptions& options) {
  const auto folder = scratch_folder(options);
  const auto prefix = concat("evenkeel-", host_name(), "-");
  for (const auto& entry : entries_of(folder)) {
    const auto name = entry.filename().string();
    if (name.starts_with(prefix) && !path_exists(fs::path("/proc") / name.substr(prefix.size()))) remove_folder(entry);
  }
  path_ = folder / concat(prefix, ::getpid());
  make_folders(path_);
}

Scratch::~Scratch() { remove_folder(path_); }

}  // namespace evenkeel::cluster
