/// \file  An int8 base, made of a checkpoint in 16 or 32 bits when it is loaded.
#pragma once

#include <filesystem>
#include <memory>

#include "models/tensor_source.h"

namespace evenkeel {

/// Weights that tokens are multiplied with as row-scaled int8 (nn/dense/frozen_weight.h), everything else as `stored`
/// has it. With a cache folder they lie in a file of it, memory-mapped as the checkpoint is: named by the hash of the
/// checkpoint's weights, made when it is not there, and checked by its own hash before it is used; one that is damaged,
/// or was made in another way, is made again.
/// \param folder  of the checkpoint. \param cache  folder for the file; empty: the weights stay in memory
/// \throws kIo when the file cannot be written, or the disk has no room for it
std::unique_ptr<TensorSource> quantized_source(std::unique_ptr<TensorSource> stored,
                                               const std::filesystem::path& folder, const std::filesystem::path& cache);

}  // namespace evenkeel
