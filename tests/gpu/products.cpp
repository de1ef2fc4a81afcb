// The matrix products that only CUDA has, or that CUDA computes with other rules than the processor.

#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "device_memory.h"
#include "recorder.h"
#include "transfers.h"

namespace evenkeel::simulated_gpu {
namespace {

constexpr int64_t kOperandAlignment = 16;  // bytes

bool is_half(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

void check_widening(at::ScalarType from, at::ScalarType to) {
  TORCH_CHECK(from == to || (to == at::kFloat && is_half(from)),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
}

at::Tensor mm_to(const at::Tensor& x, const at::Tensor& y, at::ScalarType type) {
  check_widening(x.scalar_type(), type);
  return launched([a = on_processor(x), b = on_processor(y),
                   type] { return std::vector<at::Tensor>{at::mm(a.to(type), b.to(type))}; },
                  x.device())
      .front();
}

at::Tensor& addmm_to(const at::Tensor& self, const at::Tensor& x, const at::Tensor& y, at::ScalarType type,
                     const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  check_widening(x.scalar_type(), type);
  TORCH_CHECK(x.scalar_type() == y.scalar_type(), "addmm: both matrices must have the same type");
  TORCH_CHECK(self.scalar_type() == type && out.scalar_type() == type, "addmm: the sum must have the type out_dtype");
  launch([sum = on_processor(out), added = on_processor(self), a = on_processor(x), b = on_processor(y), type, beta,
          alpha]() mutable { at::addmm_out(sum, added, a.to(type), b.to(type), beta, alpha); });
  return out;
}

// The rules of the tensor memory accelerator for an operand of a grouped product.
void check_operand(const at::Tensor& x, const char* name) {
  const auto bytes = [&](int64_t stride) { return stride * static_cast<int64_t>(x.element_size()); };
  const int64_t rows = x.stride(-2), columns = x.stride(-1);
  const bool row_major = columns == 1 && rows >= std::max<int64_t>(1, x.size(-1)),
             column_major = rows == 1 && columns >= std::max<int64_t>(1, x.size(-2));
  TORCH_CHECK(row_major || column_major, "_grouped_mm: ", name, " has strides ", x.strides(), ", sizes ", x.sizes());
  TORCH_CHECK(bytes(row_major ? rows : columns) % kOperandAlignment == 0, "_grouped_mm: strides of ", name,
              " should be multiples of 16 bytes");
  TORCH_CHECK(reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kOperandAlignment == 0, "_grouped_mm: the address of ",
              name, " should be a multiple of 16 bytes");
}

/// Returns the result's memory. Its rows are as far apart as multiples of 16 bytes are, and nothing is written yet.
at::Tensor grouped_result(at::IntArrayRef sizes, const at::Tensor& like) {
  const int64_t step = kOperandAlignment / static_cast<int64_t>(like.element_size());
  auto padded = sizes.vec();
  padded.back() = (sizes.back() + step - 1) / step * step;
  return at::empty(padded, like.options()).narrow(-1, 0, sizes.back());
}

at::Tensor grouped_mm(const at::Tensor& x, const at::Tensor& y, const std::optional<at::Tensor>& offsets,
                      const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> type) {
  TORCH_CHECK(offsets && offsets->is_cuda() && offsets->scalar_type() == at::kInt && offsets->dim() == 1,
              "_grouped_mm: offsets must be one row of int32 on the device");
  TORCH_CHECK(!bias && (!type || *type == x.scalar_type()), "_grouped_mm: no bias, and the type of the operands");
  TORCH_CHECK(x.scalar_type() == y.scalar_type() && x.device() == y.device() && x.device() == offsets->device(),
              "_grouped_mm: operands of one type on one device");
  TORCH_CHECK(x.dim() == 2 && (y.dim() == 2 || y.dim() == 3) && offsets->size(0) < 1024, "_grouped_mm: shapes");
  check_operand(x, "the first operand");
  check_operand(y, "the second operand");
  if (x.scalar_type() != at::kBFloat16) wait();  // CUDA's other types read the offsets on the host
  const bool outer = y.dim() == 2;
  const int64_t groups = offsets->size(0);
  auto result = outer ? grouped_result({groups, x.size(0), y.size(1)}, x) : grouped_result({x.size(0), y.size(2)}, x);
  // An empty group of an outer product is not written, as on some GPUs.
  launch([groups, outer, ends = on_processor(*offsets), out = on_processor(result), a = on_processor(x),
          b = on_processor(y)] {
    for (int64_t g = 0, begin = 0; g < groups; begin = ends[g++].item<int64_t>()) {
      const int64_t length = ends[g].item<int64_t>() - begin;
      if (length <= 0) continue;
      if (outer)
        out[g].copy_(at::mm(a.narrow(1, begin, length), b.narrow(0, begin, length)));
      else
        out.narrow(0, begin, length).copy_(at::mm(a.narrow(0, begin, length), b[g]));
    }
  });
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("mm.dtype", &mm_to);
  m.impl("addmm.dtype_out", &addmm_to);
  m.impl("_grouped_mm", &grouped_mm);
}

}  // namespace evenkeel::simulated_gpu
