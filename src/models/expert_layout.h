/// \file  The two layouts of a checkpoint's experts: a matrix for each expert and projection, or one tensor for all
/// experts of a layer. Models are built of matrices; in the second layout those are rows of a tensor. Where a matrix
/// lies there, its site says (Site::fused).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lora/adapter.h"
#include "models/causal_lm.h"

namespace evenkeel {

/// Rows of a fused tensor that are a matrix of the model.
struct FusedSlice {
  std::string tensor;  ///< "model.layers.0.mlp.experts.3.up_proj.weight"
  int64_t expert = 0;  ///< -1: the tensor has no axis of experts
  int64_t first_row = 0, rows = 0;
};

/// A tensor of a checkpoint, [E, rows, in] or [rows, in], and what it holds.
struct FusedTensor {
  std::vector<int64_t> sizes;
  std::vector<FusedSlice> slices;
};
using FusedTensors = std::map<std::string, FusedTensor>;

/// What a checkpoint of that layout names otherwise than the model does; nothing where it has the model's own matrices.
FusedTensors fused_tensors(const Sites& sites, ExpertLayout layout);

/// Replaces every fused tensor of either layout by the model's matrices: views of it, nothing is copied.
/// \param origin  the folder, for errors
/// \throws kCheckpoint when a fused tensor has another shape, or a matrix is there in both layouts
void split_fused(TensorMap& tensors, const Sites& sites, const std::string& origin);

/// The other way, for writing: what a checkpoint of that layout holds.
TensorMap fused_shapes(TensorMap shapes, const FusedTensors& fused);
/// Makes those out of the model's matrices, one tensor at a time.
TensorMaker fused_maker(const FusedTensors& fused, const TensorMaker& make);

}  // namespace evenkeel
