/// \file  Copies between a simulated GPU and the processor, with the rules of CUDA: a copy that does not block is made
/// late, at the next wait.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include "device_memory.h"

namespace evenkeel::simulated_gpu {

/// Returns a tensor of the processor that shares the memory of `tensor`. A tensor of the processor is returned as it
/// is.
at::Tensor on_processor(const at::Tensor& tensor);

/// Returns a copy of a tensor of the processor on `device`, without a wait.
at::Tensor on_gpu(const at::Tensor& tensor, c10::Device device);

/// Counts one operator. While it exists, the operators that compute its values on the processor are neither recorded
/// nor part of an autograd graph.
class Operator {
 public:
  Operator() { count({.operators = 1}); }

 private:
  c10::NoGradGuard no_grad_{};
  at::RecordFunctionGuard not_recorded_{/*is_enabled=*/false};
};

/// Waits as the host does for a GPU: makes the copies that did not block.
/// \throws c10::Error when the source of such a copy was changed before this wait, and while a graph is recorded
void wait();

/// Copies as aten::copy_ does when one of the tensors is on a GPU.
at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking);

}  // namespace evenkeel::simulated_gpu
