#include "train/kept_memory.h"

#include <ATen/ATen.h>

namespace evenkeel::train {

StorageCopies KeptMemory::copies(const StorageCopies& known, c10::Device device) {
  return known.with([storages = storages_, next = size_t{0}, device](const at::Tensor& bytes_N) mutable {
    if (next == storages->size()) storages->emplace_back();
    auto& own = (*storages)[next++];
    if (!own.defined() || own.numel() != bytes_N.numel() || own.device() != device) {
      own.reset();  // before new memory is allocated
      own = at::empty_like(bytes_N, bytes_N.options().device(device));
    }
    copy_bytes(bytes_N, own);
    return own;
  });
}

}  // namespace evenkeel::train
