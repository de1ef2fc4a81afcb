/// \file  Reads and writes rows by an index.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace evenkeel::nn {

/// Returns the elements of a contiguous int64 tensor on the CPU. \throws kInternal for any other tensor
std::span<const int64_t> numbers(const at::Tensor& index);

/// Writes `values` to the places `index` of `to` along dimension `dim`, as scatter_() does, with one kernel on a GPU.
/// Deterministic algorithms are off for this call, because theirs sorts the index first. The result is deterministic
/// without it: REQUIRES that no place is written twice. The switch is global, so only one thread may use a GPU.
/// \param index, values  of equal sizes \return to
at::Tensor write_once(at::Tensor to, int64_t dim, const at::Tensor& index, const at::Tensor& values);

}  // namespace evenkeel::nn
