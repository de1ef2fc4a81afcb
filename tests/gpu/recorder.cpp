#include "recorder.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/system/graph_plugin.h"
#include "device_memory.h"
#include "transfers.h"

namespace evenkeel::simulated_gpu {
namespace {

thread_local c10::StreamId stream_of_thread = 0;

/// The memory that the recordings of a pool share. A block that is freed is used again by a later tensor of the pool.
struct Pool {
  c10::DeviceIndex device = 0;
  int64_t graphs = 0;
  std::map<void*, size_t> blocks{};
  std::multimap<size_t, void*> unused{};
};

struct Pools {
  std::mutex mutex{};
  uint64_t made = 0;
  std::map<GraphPool, std::shared_ptr<Pool>> all{};
};

Pools& pools() {
  static auto* all = new Pools();  // never destroyed: tensors may outlive it
  return *all;
}

/// Returns the pool that owns a block; null: none. REQUIRES the lock.
std::shared_ptr<Pool> owner_of(void* address) {
  for (const auto& [name, pool] : pools().all)
    if (pool->blocks.contains(address)) return pool;
  return nullptr;
}

/// Gives memory that nothing uses back to the device. REQUIRES the lock.
void release_unused(Pool& pool) {
  for (const auto& [bytes, address] : pool.unused) {
    pool.blocks.erase(address);
    memory_of(pool.device).free(address);
  }
  pool.unused.clear();
}

struct Recording {
  c10::StreamId stream = 0;
  std::shared_ptr<Pool> pool{};
  std::vector<Work> works{};
  std::map<size_t, std::vector<char>> before{};
};

std::atomic<Recording*> active = nullptr;

/// Returns EVENKEEL_SIMULATED_GPU_GRAPHS: "0" for a GPU without graphs, "broken" for replays without the last operator.
std::string graphs_setting() {
  const char* text = std::getenv("EVENKEEL_SIMULATED_GPU_GRAPHS");
  return text != nullptr ? text : "";
}

Recording* recording_here() {
  auto* recording = active.load();
  return recording != nullptr && recording->stream == stream_of_thread ? recording : nullptr;
}

class Graph final : public RecordedGraph {
 public:
  ~Graph() override {
    if (!recording_.pool) return;
    const std::lock_guard lock(pools().mutex);
    if (--recording_.pool->graphs == 0) release_unused(*recording_.pool);
  }

  void begin(const GraphPool& name) override {
    TORCH_CHECK(stream_of_thread != 0, "simulated GPU: the default stream cannot be recorded");
    TORCH_CHECK(active.load() == nullptr, "simulated GPU: another recording is under way");
    const auto device = current_device();
    recording_.pool = pool_of(name, device);
    recording_.stream = stream_of_thread;
    recording_.before = memory_of(device).contents([](void* address) { return is_of_a_pool(address); });
    active = &recording_;
  }
  void end() override {
    TORCH_CHECK(active.load() == &recording_, "simulated GPU: the end of a recording that did not begin");
    active = nullptr;
    memory_of(recording_.pool->device).restore(recording_.before);
    recording_.before.clear();
  }
  void replay() override {
    refuse_in_recording("the replay of another graph");
    const Operator counted;
    const size_t left_out = recording_.works.size() > 1 && graphs_setting() == "broken" ? 1 : 0;
    for (size_t i = 0; i + left_out < recording_.works.size(); ++i) recording_.works[i]();
  }

 private:
  static std::shared_ptr<Pool> pool_of(const GraphPool& name, c10::DeviceIndex device) {
    const std::lock_guard lock(pools().mutex);
    auto& pool = pools().all[name];
    TORCH_CHECK(!pool || pool->graphs > 0, "simulated GPU: all graphs of the pool are gone, and so is the pool");
    if (!pool) pool = std::make_shared<Pool>(Pool{.device = device});
    ++pool->graphs;
    return pool;
  }
  static bool is_of_a_pool(void* address) {
    const std::lock_guard lock(pools().mutex);
    return owner_of(address) != nullptr;
  }

  Recording recording_;
};

GraphPool make_pool() {
  const std::lock_guard lock(pools().mutex);
  return {0, ++pools().made};
}

}  // namespace

void record(const Work& work) {
  if (auto* recording = recording_here()) recording->works.push_back(work);
}

void launch(const Work& work) {
  {
    const Operator counted;
    work();
  }
  record(work);
}

std::vector<at::Tensor> launched(const std::function<std::vector<at::Tensor>()>& work, c10::Device device) {
  std::vector<at::Tensor> results, memory;
  {
    const Operator counted;
    for (const auto& result : work()) results.push_back(on_gpu(result, device));
  }
  if (!is_recorded()) return results;
  for (const auto& result : results) memory.push_back(on_processor(result));
  record([work, memory] {
    const auto values = work();
    for (size_t i = 0; i < values.size(); ++i) memory[i].copy_(values[i]);
  });
  return results;
}

bool is_recorded() { return recording_here() != nullptr; }

void refuse_in_recording(const char* what) {
  TORCH_CHECK(!is_recorded(), "simulated GPU: ", what, " while a graph is recorded");
}

c10::StreamId current_stream() { return stream_of_thread; }
c10::StreamId exchange_stream(c10::StreamId stream) { return std::exchange(stream_of_thread, stream); }

void* allocate_for_recording(size_t bytes) {
  auto& pool = *recording_here()->pool;
  const std::lock_guard lock(pools().mutex);
  const auto fitting = pool.unused.lower_bound(bytes);
  if (fitting != pool.unused.end() && fitting->first <= 2 * bytes + 512) {
    void* address = fitting->second;
    pool.unused.erase(fitting);
    return address;
  }
  void* address = memory_of(pool.device).allocate(bytes);
  pool.blocks[address] = std::max<size_t>(bytes, 1);
  return address;
}

bool free_of_recording(void* address) {
  const std::lock_guard lock(pools().mutex);
  const auto pool = owner_of(address);
  if (!pool) return false;
  pool->unused.emplace(pool->blocks.at(address), address);
  if (pool->graphs == 0) release_unused(*pool);
  return true;
}

}  // namespace evenkeel::simulated_gpu

const evenkeel::GraphPlugin* evenkeel_graph_plugin() {
  static const evenkeel::GraphPlugin plugin{
      .interface = evenkeel::kGraphInterface,
      .torch = TORCH_VERSION,
      .make = [] { return std::unique_ptr<evenkeel::RecordedGraph>(new evenkeel::simulated_gpu::Graph()); },
      .make_pool = &evenkeel::simulated_gpu::make_pool};
  return evenkeel::simulated_gpu::graphs_setting() == "0" ? nullptr : &plugin;
}
