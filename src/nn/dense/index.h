/// \file  Reads and writes rows by an index.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace evenkeel::nn {

/// Returns the elements of a contiguous int64 tensor on the CPU. \throws kInternal for any other tensor
std::span<const int64_t> numbers(const at::Tensor& index);

/// The following functions write by an index with one kernel on a GPU. LibTorch's deterministic mode is off during
/// these calls, because its algorithms sort the index first. REQUIRES that no element is written twice: then results
/// are deterministic without that mode. The mode is global to the process, so only one thread may use a GPU.

/// Writes `values` to the places `index` of `to` along dimension `dim`, as scatter_() does.
/// \param index, values  of equal sizes \return to
at::Tensor write_once(at::Tensor to, int64_t dim, const at::Tensor& index, const at::Tensor& values);
/// Writes one value to the places `index` of `to` along dimension `dim`, as scatter_() does. \return to
at::Tensor write_once(at::Tensor to, int64_t dim, const at::Tensor& index, const at::Scalar& value);
/// Writes the rows of `from` to the rows `index_N` of `to` along dimension `dim`, as index_copy_() does.
void copy_rows_once(at::Tensor to, int64_t dim, const at::Tensor& index_N, const at::Tensor& from);

}  // namespace evenkeel::nn
