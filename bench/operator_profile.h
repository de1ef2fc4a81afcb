/// \file  Profiles what runs on the CPU and on a GPU, with LibTorch's profiler (Kineto): for each operator the number
/// of calls, kernel launches, the CPU's own time and the time of its kernels.
/// Example:  bench::OperatorProfile profile(device);  work();  synchronize(device);  profile.finish(30);
#pragma once

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/plain/clock.h"
#include "base/plain/json.h"

namespace evenkeel::bench {

/// Sums over all calls of one name, in milliseconds.
struct CallSums {
  int64_t calls = 0;
  int64_t launches = 0;  ///< kernels, copies and fills that its calls started; inner operators count their own
  double host_ms = 0;    ///< time on the CPU without the operators and the CUDA runtime calls inside
  double device_ms = 0;  ///< time of the started kernels on the device
};

/// Records from the end of the constructor, which starts the profiler, until finish(), which must be called once. One
/// object at a time, on the thread that starts the work. Threads of autograd are recorded too.
class OperatorProfile {
 public:
  explicit OperatorProfile(c10::Device device) {
    namespace impl = torch::profiler::impl;
    std::set<impl::ActivityType> activities{impl::ActivityType::CPU};
    if (device.is_cuda()) activities.insert(impl::ActivityType::CUDA);
    const impl::ProfilerConfig config(impl::ProfilerState::KINETO);
    torch::autograd::profiler::prepareProfiler(config, activities);
    torch::autograd::profiler::enableProfiler(config, activities,
                                              {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION});
    begin_ = std::chrono::steady_clock::now();
  }
  OperatorProfile(const OperatorProfile&) = delete;
  OperatorProfile& operator=(const OperatorProfile&) = delete;

  /// Ends the recording. REQUIRES that the device has finished.
  /// \param most  largest number of entries in each list
  /// \return "wall_ms", the time since the constructor ended, the totals "launches", "host_ms" and "device_ms", and the
  /// lists "operators", "runtime" (calls of the CUDA runtime) and "kernels". An entry has a name and the fields of
  /// CallSums; the longest time comes first.
  OrderedJson finish(size_t most) {
    const double wall_ms = 1e3 * seconds_since(begin_);
    const auto result = torch::autograd::profiler::disableProfiler();
    for (const auto& event : result->events()) take(event);
    add_own_times();
    for (const auto& [operation, ms, name] : device_work_) {
      add(kernels_[name], ms);
      if (const auto found = operators_by_id_.find(operation); found != operators_by_id_.end())
        add(operators_[found->second], ms);
    }
    return {{"wall_ms", wall_ms},
            {"launches", static_cast<int64_t>(device_work_.size())},
            {"host_ms", sum(operators_, &CallSums::host_ms) + sum(runtime_, &CallSums::host_ms)},
            {"device_ms", sum(kernels_, &CallSums::device_ms)},
            {"operators", listed(operators_, most)},
            {"runtime", listed(runtime_, most)},
            {"kernels", listed(kernels_, most)}};
  }

 private:
  using Event = torch::autograd::profiler::KinetoEvent;
  using Sums = std::map<std::string, CallSums>;
  struct HostCall {
    uint64_t thread, start, end;
    bool is_operator;
    std::string name;
  };
  struct DeviceWork {
    uint64_t operation;  // id of the operator that launched it
    double ms;
    std::string name;
  };

  static double milliseconds(uint64_t begin, uint64_t end) { return 1e-6 * static_cast<double>(end - begin); }

  /// Events of the CPU are operators, or calls of CUDA's runtime, which have a link to their operator.
  void take(const Event& event) {
    const uint64_t end = event.startNs() + event.durationNs();
    if (event.deviceType() != c10::DeviceType::CPU) {
      device_work_.push_back({event.linkedCorrelationId(), milliseconds(event.startNs(), end), event.name()});
      return;
    }
    const bool is_operator = event.linkedCorrelationId() == 0 && !event.name().starts_with("cu");
    host_.push_back({event.startThreadId(), event.startNs(), end, is_operator, event.name()});
    if (is_operator) operators_by_id_[event.correlationId()] = event.name();
  }

  /// Adds each call's time without the calls inside it. Calls of a thread are nested or apart.
  void add_own_times() {
    std::sort(host_.begin(), host_.end(), [](const HostCall& x, const HostCall& y) {
      return std::tuple(x.thread, x.start, y.end) < std::tuple(y.thread, y.start, x.end);
    });
    std::vector<const HostCall*> open;
    for (const auto& call : host_) {
      while (!open.empty() && (open.back()->thread != call.thread || open.back()->end <= call.start)) open.pop_back();
      const double ms = milliseconds(call.start, call.end);
      auto& own = sums_of(call);
      ++own.calls;
      own.host_ms += ms;
      if (!open.empty()) sums_of(*open.back()).host_ms -= ms;
      open.push_back(&call);
    }
  }
  CallSums& sums_of(const HostCall& call) { return (call.is_operator ? operators_ : runtime_)[call.name]; }

  static void add(CallSums& sums, double ms) {
    ++sums.launches;
    sums.device_ms += ms;
  }

  static double sum(const Sums& all, double CallSums::*field) {
    double total = 0;
    for (const auto& [name, sums] : all) total += sums.*field;
    return total;
  }

  static OrderedJson listed(const Sums& all, size_t most) {
    std::vector<std::pair<double, std::string_view>> order;
    for (const auto& [name, sums] : all) order.emplace_back(-std::max(sums.device_ms, sums.host_ms), name);
    std::sort(order.begin(), order.end());
    order.resize(std::min(most, order.size()));
    OrderedJson list = OrderedJson::array();
    for (const auto& [time, name] : order) {
      const auto& sums = all.at(std::string(name));
      list.push_back({{"name", name},
                      {"calls", sums.calls},
                      {"launches", sums.launches},
                      {"host_ms", sums.host_ms},
                      {"device_ms", sums.device_ms}});
    }
    return list;
  }

  std::chrono::steady_clock::time_point begin_;
  std::vector<HostCall> host_{};
  std::vector<DeviceWork> device_work_{};
  std::map<uint64_t, std::string> operators_by_id_{};
  Sums operators_{}, runtime_{}, kernels_{};
};

}  // namespace evenkeel::bench
