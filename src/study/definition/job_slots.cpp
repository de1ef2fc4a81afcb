#include "study/definition/job_slots.h"

#include <algorithm>
#include <utility>

#include "base/plain/error.h"
#include "base/system/device.h"

namespace evenkeel::study {
namespace {

constexpr std::string_view kEveryGpu = "cuda";

int64_t slot_count(const std::string& device, int64_t jobs, int64_t gpus) {
  if (!names_gpu(device)) return jobs;
  return device == kEveryGpu ? std::clamp<int64_t>(gpus, 1, jobs) : 1;
}

}  // namespace

JobSlots::JobSlots(std::string device, int64_t jobs, int64_t gpus)
    : device_(std::move(device)), jobs_(jobs), taken_(static_cast<size_t>(slot_count(device_, jobs, gpus)), false) {}

std::optional<size_t> JobSlots::take() {
  const auto free = std::find(taken_.begin(), taken_.end(), false);
  if (free == taken_.end()) return std::nullopt;
  *free = true;
  return static_cast<size_t>(free - taken_.begin());
}

void JobSlots::give_back(size_t slot) { taken_.at(slot) = false; }

std::vector<std::string> JobSlots::environment(size_t slot) const {
  if (device_ != kEveryGpu || count() == 1) return {};
  return {concat("LOCAL_RANK=", slot)};
}

std::string JobSlots::notice() const {
  if (jobs_ == 1 || !names_gpu(device_)) return {};
  const auto last = count() - 1;
  const auto gpus = device_ == kEveryGpu ? last > 0 ? concat("each of cuda:0 to cuda:", last) : "the GPU" : device_;
  return concat("--jobs ", jobs_, ": runs take turns on ", gpus, ", ", count(), " at a time");
}

JobSlots job_slots(const std::string& device, int64_t jobs) {
  if (device == "auto") return job_slots(find_device(device, "model.device").is_cpu() ? "cpu" : "cuda", jobs);
  return {device, jobs, gpu_count()};
}

}  // namespace evenkeel::study
