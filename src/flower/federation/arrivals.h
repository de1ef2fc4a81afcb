/// \file  Holds payloads that arrive from nodes in mapped files, so that uploads take no anonymous memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>

namespace evenkeel::flower {

/// Returns [bytes] uint8, mapped to an unlinked file whose blocks are all reserved.
/// \param folder  made if absent \throws kIo when the disk is full, or the file cannot be made or mapped
/// Threads: any.
at::Tensor mapped_buffer(const std::filesystem::path& folder, int64_t bytes);

/// Removes the files of mapped_buffer() that a killed process has left in the folder. REQUIRES that no other process
/// receives payloads in it.
void remove_arrivals(const std::filesystem::path& folder);

}  // namespace evenkeel::flower
