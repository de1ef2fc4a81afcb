/// \file  Where a client's tensors lie while it trains or answers: where the base does. On a GPU they are copied there
/// and back; on the processor everything stays where it is.
#pragma once

#include <memory>

#include "base/system/device.h"
#include "methods/protocol.h"

namespace evenkeel {

/// A device with what all clients hold alike on it, copied once for all of them. Threads: reading from several.
struct Residence {
  c10::Device device = c10::kCPU;
  Common common{};
  StorageCopies copies = StorageCopies::to(c10::kCPU);  ///< knows the tensors of `common`: a client begins with these
};

/// \param copies  to `device`
Residence make_residence(const Common& common, c10::Device device, StorageCopies copies);

/// Tensors that share memory share it in the copy. What `ranks` says of a stack stays where it is: nobody computes with
/// it.
AdapterState copied(const AdapterState& adapters, StorageCopies& copies);
LocalSetup copied(const LocalSetup& setup, StorageCopies& copies);
/// Its extras of one axis or more; adapters stay, and so do single numbers, which are read as such.
Payload extras_copied(const Payload& payload, StorageCopies& copies);

}  // namespace evenkeel
