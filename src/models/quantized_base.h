/// \file  Quantises the base to int8 when a checkpoint with 16-bit or 32-bit weights is loaded.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "lora/adapter.h"
#include "models/tensor_source.h"

namespace evenkeel::models {

/// Opens the checkpoint again, in its stored format.
/// \param sites  sites of the model, which locate its matrices in fused tensors
using OpenStored = std::function<std::unique_ptr<TensorSource>(const lora::Sites& sites)>;

/// Returns a source that gives the weights of matrix products as row-scaled int8 (nn/dense/frozen_weight.h) and all
/// other tensors as `stored` gives them.
/// With a cache folder, the int8 weights are written to a file there and memory-mapped. The file's name contains the
/// hash of the checkpoint's weights, and the file's own hash is checked before use. A file that is missing, damaged, or
/// quantised by another recipe is written again.
/// \param folder  folder of the checkpoint, for the hash
/// \param open    opens the checkpoint to write the file
/// \param cache   folder for the file; empty: the weights stay in memory
/// \throws kIo when the file cannot be written or the disk is too small. take_weight() of the result throws kCheckpoint
/// when a file in the cache lacks a tensor
std::unique_ptr<TensorSource> quantized_source(std::unique_ptr<TensorSource> stored,
                                               const std::filesystem::path& folder, const OpenStored& open,
                                               const std::filesystem::path& cache);

}  // namespace evenkeel::models
