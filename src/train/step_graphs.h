/// \file  Keeps what recorded passes (nn/engine/pass_graphs.h) need between the clients of a process: the memory of a
/// client's tensors stays where it is, so that the next client with equal shapes replays the same recordings.
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
constexpr size_t kMostShapesOfClients = 4;  ///< shapes of clients whose memory is kept, as many as budgets

/// Recorded passes of one model, and the memory of clients. Only one client at a time may train with it.
class StepGraphs {
 public:
  /// REQUIRES an engine that records passes (Engine::graphs()).
  explicit StepGraphs(nn::EngineKind engine);

  nn::PassGraphs& passes() { return *passes_; }
  /// Returns an object that copies the tensors of a client to kept memory of `device`. The memory of clients with
  /// equal shapes is the same, so the copies of the client before are overwritten.
  /// \param known  what is copied already
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
