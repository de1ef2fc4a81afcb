/// \file  Keeps CUDA graphs of training passes (nn/engine/pass_graphs.h) and the tensor memory that they read, so that
/// the next client with equal shapes replays them.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/system/device.h"
#include "methods/protocol.h"
#include "nn/compute/compute.h"
#include "nn/engine/pass_graphs.h"
#include "train/kept_memory.h"

namespace evenkeel::train {

constexpr int64_t kPaddingStep = 256;  ///< rows and tokens of a batch are padded to multiples of it (data::padded())
/// Sets of shapes whose memory is kept; the least recently used is dropped. A set per default budget: 4.
constexpr size_t kMostShapesOfClients = 4;

/// CUDA graphs of one model, and the memory of clients' tensors. Only one client at a time may train with it.
class StepGraphs {
 public:
  /// REQUIRES an engine that records CUDA graphs (Engine::graphs()).
  explicit StepGraphs(nn::EngineKind engine);

  nn::PassGraphs& passes() { return *passes_; }
  /// Returns an object that copies the tensors of a client to kept memory of `device`. Clients with equal shapes share
  /// memory, so the copies of the previous client are overwritten.
  /// \param known  remembers the tensors that are copied already; they are not copied again
  StorageCopies copies_of(const methods::LocalSetup& setup, const StorageCopies& known, c10::Device device);

 private:
  using Shape = std::vector<int64_t>;
  struct Kept {
    Shape shape;
    KeptMemory memory{};
  };

  std::unique_ptr<nn::PassGraphs> passes_;
  std::list<Kept> kept_;  // the most recently used first
};

}  // namespace evenkeel::train
