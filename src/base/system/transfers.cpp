#include "base/system/transfers.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace evenkeel {

at::Tensor uploaded(std::span<const int64_t> values, c10::Device device) {
  const auto host_N =
      at::empty({std::ssize(values)}, at::TensorOptions().dtype(at::kLong).pinned_memory(!device.is_cpu()));
  std::copy(values.begin(), values.end(), host_N.mutable_data_ptr<int64_t>());
  return host_N.to(device, /*non_blocking=*/true);
}

Download::Download(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  if (tensors_.empty() || tensors_.front().is_cpu()) return;
  const auto device = tensors_.front().device();
  for (auto& tensor : tensors_) {
    const auto host = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
    host.copy_(tensor, /*non_blocking=*/true);
    tensor = host;
  }
  done_ = std::make_shared<c10::Event>(device.type());
  done_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

const std::vector<at::Tensor>& Download::wait() {
  if (done_) done_->synchronize();
  done_.reset();
  return tensors_;
}

}  // namespace evenkeel
