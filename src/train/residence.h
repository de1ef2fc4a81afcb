/// \file  Copies a client's tensors to the device of the base for training and evaluation. On the CPU nothing is
/// copied.
#pragma once

#include <memory>

#include "base/system/device.h"
#include "methods/protocol.h"
#include "train/kept_memory.h"

namespace evenkeel::train {

/// Holds the copy on a device of the tensors that all clients share.
/// Threads: several threads may read one object.
struct Residence {
  c10::Device device = c10::kCPU;
  methods::Common common{};
  /// Maps memory of `common` on the processor to its copy on the device. Each client copies this map and adds its own
  /// tensors, so that shared ones are not copied again.
  StorageCopies copies = StorageCopies::to(c10::kCPU);
};

/// Copies `common` to `device`.
/// \param copies  copies tensors to `device`
Residence make_residence(const methods::Common& common, c10::Device device, StorageCopies copies);
/// Copies `common` to `memory` on `device`. An older residence in the same memory is overwritten and must no longer be
/// in use. The copies of clients get memory of their own.
Residence make_residence(const methods::Common& common, c10::Device device, KeptMemory& memory);

/// Copies adapters or a setup with `copies`. Tensors that share memory also share it in the copy. The field `ranks` is
/// not copied to the device, because no kernel uses it.
lora::AdapterState copied(const lora::AdapterState& adapters, StorageCopies& copies);
methods::LocalSetup copied(const methods::LocalSetup& setup, StorageCopies& copies);
/// Copies the extras that have at least one axis. Adapters and scalars stay on the CPU.
lora::Payload extras_copied(const lora::Payload& payload, StorageCopies& copies);

}  // namespace evenkeel::train
