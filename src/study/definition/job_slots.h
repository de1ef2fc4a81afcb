/// \file  Distributes the runs of a study over the devices of this machine. Runs on processors share the cores. Runs on
/// GPUs take turns: at most one runs on each GPU at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace evenkeel::study {

/// The places of the runs that are executed at the same time. A run takes a free slot when it starts and gives it back
/// when it ends.
class JobSlots {
 public:
  /// \param device  model.device of the runs: cpu, cuda or cuda:N. With cuda, runs are spread over all GPUs
  /// \param jobs    largest number of runs at the same time; the number of GPUs is a further limit
  /// \param gpus    number of GPUs of this machine
  JobSlots(std::string device, int64_t jobs, int64_t gpus);

  int64_t count() const { return static_cast<int64_t>(taken_.size()); }
  /// Takes the free slot with the smallest index. \return nothing if all are taken
  std::optional<size_t> take();
  /// REQUIRES a slot that is taken
  void give_back(size_t slot);
  /// Returns the environment variables, each as NAME=VALUE, that make `cuda` the GPU of the slot in a run
  /// (base/system/device.h). Empty unless there are several slots of cuda.
  std::vector<std::string> environment(size_t slot) const;
  /// Returns a sentence about the runs on GPUs; empty if `jobs` is 1 or the runs are on processors.
  std::string notice() const;

 private:
  std::string device_;
  int64_t jobs_;
  std::vector<bool> taken_;
};

/// Returns the slots on this machine. \param device  may also be "auto"
JobSlots job_slots(const std::string& device, int64_t jobs);

}  // namespace evenkeel::study
