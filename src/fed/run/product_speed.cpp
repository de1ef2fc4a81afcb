#include "fed/run/product_speed.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "base/plain/clock.h"
#include "base/system/device.h"
#include "base/system/threads.h"
#include "nn/dense/frozen_weight.h"

namespace evenkeel::fed {
namespace {

constexpr double kProductSeconds = 0.4;
constexpr int kFewestMeasurements = 4;
constexpr int64_t kProductWidth = 2048;

/// The products of one measurement.
struct ProductShape {
  int64_t rows = 256, products = 1;
  double flops() const { return 2.0 * static_cast<double>(rows * products) * kProductWidth * kProductWidth; }
};

/// A GPU gets enough work for one wait that launches and the wait itself do not count.
ProductShape product_shape(c10::Device device) {
  return device.is_cpu() ? ProductShape{} : ProductShape{.rows = 8192, .products = 16};
}

double speed_of_operators(c10::Device device, at::ScalarType type) {
  const auto shape = product_shape(device);
  const auto options = at::TensorOptions().device(device).dtype(type);
  const auto x_TI = at::ones({shape.rows, kProductWidth}, options);
  const auto w_IO = at::ones({kProductWidth, kProductWidth}, options);
  auto y_TO = at::empty({shape.rows, kProductWidth}, options);
  return shape.flops() / least_seconds([&] {
           for (int64_t i = 0; i < shape.products; ++i) at::mm_out(y_TO, x_TI, w_IO);
           synchronize(device);
         });
}

double speed_of_kernels(at::ScalarType stored, const nn::MatmulTable& table) {
  const ProductShape shape;
  const auto x_TI = at::ones({shape.rows, kProductWidth}, at::kFloat);
  const nn::FrozenWeight weight(at::ones({kProductWidth, kProductWidth}, stored));
  auto y_TO = at::empty({shape.rows, kProductWidth}, at::kFloat);
  return shape.flops() / least_seconds([&] { nn::matmul_nt_out(y_TO, x_TI, weight, table); });
}

/// Returns the tables of kernels that a run may compute with.
std::vector<nn::MatmulTable> tables_of(const ModelSection& model) {
  if (model.compute_dtype != ComputeDtype::kAuto || model.stores_wide()) return {model.product_table()};
  if (model.products.given()) return {model.products.table()};
  using enum nn::MatmulKernel;
  return {kFp32Exact, kUpcast, kBf16Vendor, kBf16Dot, kBf16Tile};
}

/// Sets the number of threads of the pool, and restores it.
class PoolThreads {
 public:
  explicit PoolThreads(int64_t threads) : before_(at::get_num_threads()) {
    if (threads > 0) use_pool_threads(threads);
  }
  ~PoolThreads() { at::set_num_threads(before_); }
  PoolThreads(const PoolThreads&) = delete;
  PoolThreads& operator=(const PoolThreads&) = delete;

 private:
  int before_;
};

}  // namespace

double least_seconds(const std::function<void()>& work) {
  work();
  double least = std::numeric_limits<double>::max();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kFewestMeasurements || seconds_since(begin) < kProductSeconds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    least = std::min(least, seconds_since(start));
  }
  return least;
}

double product_speed(ModelSection model, int64_t threads) {
  const c10::NoGradGuard no_grad;
  const PoolThreads pool(threads);
  const auto device = find_device(model.device, "model.device");
  model.device = device.is_cpu() ? "cpu" : "cuda";
  if (model.uses_operators()) {
    model.settle({.threads = 1, .products = {}, .device = model.device});
    return speed_of_operators(device, model.compute().inner);
  }
  const auto stored = model.stores_wide() ? at::kFloat : at::kBFloat16;
  double fastest = 0;
  for (const auto& table : tables_of(model)) fastest = std::max(fastest, speed_of_kernels(stored, table));
  return fastest;
}

double product_speed(const ExperimentConfig& config) {
  return product_speed(config.model, config.threads * config.clients.parallel);
}

}  // namespace evenkeel::fed
