/// Measures what starting work on a device costs the processor: an allocation, an operator, a product with few columns,
/// a grouped product, and with the CUDA driver's own functions an empty kernel and a node of a graph. Operators run as
/// in the program, with deterministic algorithms. Prints one JSON line for each:
///   {"what", "calls", "host_us": microseconds until a call returns, "us": microseconds until its work is done}
/// The calls are made in bursts that the device's queue can hold; both numbers are medians over the bursts. A line with
/// "skipped" says what it needs. --tiny makes few calls of small sizes.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <vector>

#include "base/plain/clock.h"
#include "base/plain/json.h"
#include "base/system/device.h"
#include "base/system/process.h"
#include "bench/device_check/driver_launches.h"

namespace evenkeel {
namespace {

struct Job {
  std::string device = "cpu";
  bool tiny = false;
};

struct Work {
  std::string what;
  std::function<void()> call, wait;
  int64_t calls = 20000;
  int64_t parts = 1;  ///< what one call counts for, as the nodes of a graph
};

constexpr int64_t kBurst = 200;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void print(const OrderedJson& line) { std::cout << line.dump() << std::endl; }

void measure(const Job& job, const Work& work) {
  const int64_t calls = job.tiny ? std::max<int64_t>(1, work.calls / 1000) : work.calls;
  const int64_t burst = std::min(calls, kBurst);
  std::vector<double> returned, done;
  work.call(), work.wait();
  for (int64_t made = 0; made < calls; made += burst) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < burst; ++i) work.call();
    returned.push_back(seconds_since(begin));
    work.wait();
    done.push_back(seconds_since(begin));
  }
  const double each = 1e6 / static_cast<double>(burst * work.parts);
  print({{"what", work.what}, {"calls", calls}, {"host_us", each * median(returned)}, {"us", each * median(done)}});
}

void measure_operators(const Job& job, c10::Device device) {
  const int64_t tokens = job.tiny ? 32 : 2048, hidden = job.tiny ? 16 : 2048, experts = job.tiny ? 4 : 64;
  const int64_t width = job.tiny ? 8 : 1024, rank = job.tiny ? 8 : 20, all_calls = 20000, product_calls = 3000;
  const auto here = at::device(device);
  const auto wait = [device] { synchronize(device); };
  auto on_processor = at::zeros({1}), number = at::zeros({1}, here);
  const auto x = at::ones({tokens, hidden}, here.dtype(at::kBFloat16)), narrow = at::ones({hidden, rank}, x.options());
  auto product = at::empty({tokens, rank}, x.options());
  const auto weights = at::ones({experts, 2 * width, hidden}, x.options()).transpose(1, 2);
  const auto ends = at::arange(1, experts + 1, here.dtype(at::kInt)) * (tokens / experts);
  measure(job, {"add_ of one number on the processor", [&] { on_processor.add_(1); }, [] {}, all_calls});
  measure(job, {"allocation", [&] { at::empty({1}, here); }, wait, all_calls});
  measure(job, {"add_ of one number", [&] { number.add_(1); }, wait, all_calls});
  measure(job, {concat("mm with ", rank, " columns"), [&] { at::mm_out(product, x, narrow); }, wait, all_calls});
  measure(job, {"_grouped_mm", [&] { at::_grouped_mm(x, weights, ends); }, wait, product_calls});
}

void measure_driver(const Job& job) {
  constexpr int kNodes = 2000;
  const auto driver = bench::DriverLaunches::open();
  for (const auto* what : {"empty kernel", "node of a graph"})
    if (!driver) print({{"what", what}, {"skipped", "needs a real GPU: there is no libcuda.so.1"}});
  if (!driver) return;
  const auto wait = [&] { driver->wait(); };
  measure(job, {"empty kernel", [&] { driver->launch(); }, wait});
  driver->capture(kNodes);
  measure(job, {"node of a graph", [&] { driver->replay(); }, wait, 100, kNodes});
}

void run(const Job& job) {
  const auto device = find_device(job.device, "--device");
  settle_device(device);
  const at::NoGradGuard no_grad;
  measure_operators(job, device);
  measure_driver(job);
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::settle_process(argv);
  CLI::App program("What starting work on a device costs");
  evenkeel::Job job;
  program.add_option("--device", job.device, "cpu, cuda or cuda:N")->capture_default_str();
  program.add_flag("--tiny", job.tiny, "few calls of small sizes");
  CLI11_PARSE(program, argc, argv);
  try {
    evenkeel::run(job);
  } catch (const std::exception& error) {
    std::cerr << "launch_costs: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
