/// \file  Helpers of tests: threads that act as the processes of a distributed sum, and payloads in files.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "base/plain/files.h"
#include "lora/fixed_point.h"
#include "lora/payload.h"

namespace evenkeel::testing {

/// Writes a payload to `file` in float32 and returns it mapped, as a journal holds it.
inline lora::Payload mapped(const lora::Payload& payload, const fs::path& file) {
  const auto bytes = lora::encode(payload, lora::TransportDtype::kFloat32, {}).bytes;
  write_file_atomic(file, {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())});
  return lora::load_payload(file);
}

/// A reduction over `size` threads. Each thread has a Seat and waits until all have made the same call.
class Meeting {
 public:
  explicit Meeting(size_t size) : size_(size) {}

  struct Seat : lora::Reduction {
    explicit Seat(Meeting& meeting) : meeting(meeting) {}
    void max(std::span<int64_t> values) const override {
      meeting.meet(values, [](int64_t x, int64_t y) { return std::max(x, y); });
    }
    void sum(std::span<int64_t> values) const override { meeting.meet(values, std::plus<int64_t>()); }
    Meeting& meeting;
  };

 private:
  void meet(std::span<int64_t> values, const std::function<int64_t(int64_t, int64_t)>& join) {
    std::unique_lock lock(mutex_);
    if (here_ == 0)
      all_.assign(values.begin(), values.end());
    else
      for (size_t i = 0; i < all_.size(); ++i) all_[i] = join(all_[i], values[i]);
    const auto round = round_;
    if (++here_ == size_) {
      done_ = all_;
      here_ = 0;
      ++round_;
      met_.notify_all();
    } else {
      met_.wait(lock, [&] { return round_ != round; });
    }
    std::copy(done_.begin(), done_.end(), values.begin());
  }

  const size_t size_;
  std::mutex mutex_;
  std::condition_variable met_;
  std::vector<int64_t> all_, done_;
  size_t here_ = 0, round_ = 0;
};

}  // namespace evenkeel::testing
