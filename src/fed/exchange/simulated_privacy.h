/// \file  Simulates private training: keys come from the run's seed, and accounts are stored in the clients' memories.
/// So a resumed run, a run on ranks and a repeated round give the same bits. A repeated round is charged only once.
#pragma once

#include "fed/config/run_config.h"
#include "fed/exchange/example_privacy.h"

namespace evenkeel::fed {

/// The privacy of `[privacy] unit = "example"`.
class SimulatedPrivacy : public ExamplePrivacy {
 public:
  explicit SimulatedPrivacy(RunConfig config) : config_(std::move(config)) {}
  train::PrivateSteps begin(const Task& task, const PrivateRound& round) override;

 private:
  RunConfig config_;
};

}  // namespace evenkeel::fed
