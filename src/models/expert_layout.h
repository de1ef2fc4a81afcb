/// \file  Converts between the two layouts of experts in a checkpoint: one matrix per expert and projection, or one
/// fused tensor for all experts of a layer. Models use matrices. Site::fused gives the position of a matrix in the
/// fused tensor.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lora/adapter.h"
#include "models/causal_lm.h"

namespace evenkeel::models {

/// Rows of a fused tensor that form one matrix of the model.
struct FusedSlice {
  std::string tensor;  ///< name of the matrix, as in "model.layers.0.mlp.experts.3.up_proj.weight"
  int64_t expert = 0;  ///< index of the expert; -1: the tensor has no axis of experts
  int64_t first_row = 0, rows = 0;
};

/// A fused tensor of a checkpoint: its shape, [E, rows, in] or [rows, in], and its matrices.
struct FusedTensor {
  std::vector<int64_t> sizes;
  std::vector<FusedSlice> slices;
};
using FusedTensors = std::map<std::string, FusedTensor>;

/// Returns the fused tensors of a checkpoint in `layout`, by name. The result is empty if the layout has no fused
/// tensors.
FusedTensors fused_tensors(const lora::Sites& sites, ExpertLayout layout);

/// Replaces every fused tensor, of either layout that transformers has, by views of its matrices. Nothing is copied.
/// \param origin  the folder, for errors
/// \throws kCheckpoint when a fused tensor has another shape, or a matrix exists in both layouts
void split_fused(TensorMap& tensors, const lora::Sites& sites, const std::string& origin);

/// Replaces the matrices in `shapes` by the fused tensors that contain them, as tensors without storage.
TensorMap fused_shapes(TensorMap shapes, const FusedTensors& fused);
/// Returns a function that makes the tensors of fused_shapes() from the matrices that `make` returns, one at a time. It
/// keeps references to both arguments, which must outlive it.
TensorMaker fused_maker(const FusedTensors& fused, const TensorMaker& make);

}  // namespace evenkeel::models
