/// \file  An int8 base, quantised when a checkpoint is loaded whose weights are stored in 16 or 32 bits.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "lora/adapter.h"
#include "models/tensor_source.h"

namespace evenkeel {

/// Opens the checkpoint once more, as it is stored. \param sites  of the model, for fused tensors
using OpenStored = std::function<std::unique_ptr<TensorSource>(const Sites& sites)>;

/// Returns a source that gives the weights of matrix products as row-scaled int8 (nn/dense/frozen_weight.h) and
/// everything else as `stored` has it. With a cache folder, the int8 weights are written to a file there and
/// memory-mapped. The name of that file is the hash of the checkpoint's weights, and its own hash is checked before it
/// is used. A file that is missing, damaged, or was quantised in another way is written anew.
/// \param folder  of the checkpoint \param open  used where the file has to be written
/// \param cache   folder for the file; empty: the weights stay in memory
/// \throws kIo when the file cannot be written, or the disk has no room for it
std::unique_ptr<TensorSource> quantized_source(std::unique_ptr<TensorSource> stored,
                                               const std::filesystem::path& folder, const OpenStored& open,
                                               const std::filesystem::path& cache);

}  // namespace evenkeel
