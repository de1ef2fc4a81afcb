#include "transfers.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <mutex>
#include <vector>

#include "device_memory.h"
#include "recorder.h"

namespace evenkeel::simulated_gpu {
namespace {

/// A copy from pinned memory that has not been waited for. The GPU may read its source at any time until then.
struct Upload {
  at::Tensor from, as_it_was;
};
/// A copy into memory of the processor. Its bytes arrive at the next wait.
struct Download {
  at::Tensor to, values;
};

struct Pending {
  std::mutex mutex{};
  std::vector<Upload> uploads{};
  std::vector<Download> downloads{};
};

Pending& pending() {
  static auto* all = new Pending();
  return *all;
}

void copy_up(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  refuse_in_recording("a copy to the GPU");
  on_processor(to).copy_(from);
  count({.bytes_up = static_cast<int64_t>(from.nbytes())});
  if (!non_blocking) return wait();
  if (!from.is_pinned()) return;  // CUDA copies such memory before it returns
  const std::lock_guard lock(pending().mutex);
  pending().uploads.push_back({from, from.clone()});
}

void copy_down(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  refuse_in_recording("a copy to the processor");
  count({.bytes_down = static_cast<int64_t>(from.nbytes())});
  if (!non_blocking) {
    to.copy_(on_processor(from));
    return wait();
  }
  const std::lock_guard lock(pending().mutex);
  pending().downloads.push_back({to, on_processor(from).clone()});
}

}  // namespace

at::Tensor on_processor(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  const auto options = at::TensorOptions().dtype(tensor.scalar_type());
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(accessible(tensor.mutable_data_ptr()), tensor.sizes(), tensor.strides(), options);
}

at::Tensor on_gpu(const at::Tensor& tensor, c10::Device device) {
  auto moved = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device));
  if (tensor.numel() > 0) on_processor(moved).copy_(tensor);
  return moved;
}

void wait() {
  refuse_in_recording("a wait");
  count({.waits = 1});
  const at::RecordFunctionGuard not_recorded(false);
  std::vector<Upload> uploads;
  std::vector<Download> downloads;
  {
    const std::lock_guard lock(pending().mutex);
    uploads.swap(pending().uploads);
    downloads.swap(pending().downloads);
  }
  for (const auto& [from, as_it_was] : uploads)
    TORCH_CHECK(at::equal(from.view(at::kByte), as_it_was.view(at::kByte)),
                "simulated GPU: the source of a copy was changed before the host waited for it");
  for (const auto& [to, values] : downloads) to.copy_(values);
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.numel() == 0) return to;
  const c10::NoGradGuard no_grad;
  const at::RecordFunctionGuard not_recorded(false);
  if (from.is_cpu())
    copy_up(to, from, non_blocking);
  else if (to.is_cpu())
    copy_down(to, from, non_blocking);
  else
    launch([to_view = on_processor(to), from_view = on_processor(from)] { to_view.copy_(from_view); });
  return to;
}

}  // namespace evenkeel::simulated_gpu
