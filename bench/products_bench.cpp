// Measures products of float32 activations with stored weights that are not cached, in both directions and by number of
// rows. It compares this program's packed products over bfloat16, int8 and float32, and its pairs and tiles over the
// first two, with upcasting to float32 + the library's product, and with the library's bfloat16 product. Counters:
// GFLOP/s and GB/s of weight read. Each is also given as a fraction of this machine's limit, which is measured with the
// same threads just before, because other processes affect it.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <chrono>
#include <map>

#include "base/plain/error.h"
#include "base/system/dispatch.h"
#include "bench/machine_limits.h"
#include "nn/kernels/matmul/gemm.h"

namespace evenkeel {
namespace {

// ---- the products

enum class Kernel {
  kPackedBf16,
  kPackedInt8,
  kPackedFloat,
  kPairsBf16,
  kPairsInt8,
  kTilesBf16,
  kTilesInt8,
  kWiden,
  kLibraryBf16
};
constexpr std::array<std::pair<Kernel, const char*>, 9> kKernels{{{Kernel::kPackedBf16, "packed_bf16"},
                                                                  {Kernel::kPackedInt8, "packed_int8"},
                                                                  {Kernel::kPackedFloat, "packed_float"},
                                                                  {Kernel::kPairsBf16, "pairs_bf16"},
                                                                  {Kernel::kPairsInt8, "pairs_int8"},
                                                                  {Kernel::kTilesBf16, "tiles_bf16"},
                                                                  {Kernel::kTilesInt8, "tiles_int8"},
                                                                  {Kernel::kWiden, "widen_sgemm"},
                                                                  {Kernel::kLibraryBf16, "library_bf16"}}};

at::ScalarType stored_as(Kernel kernel) {
  if (kernel == Kernel::kPackedInt8 || kernel == Kernel::kPairsInt8 || kernel == Kernel::kTilesInt8) return at::kChar;
  return kernel == Kernel::kPackedFloat ? at::kFloat : at::kBFloat16;
}

struct Setting {
  Kernel kernel;
  int64_t rows, out, in;
  bool forward;

  nn::kernels::Arithmetic arithmetic() const {
    if (kernel == Kernel::kPairsBf16 || kernel == Kernel::kPairsInt8) return nn::kernels::Arithmetic::kBf16Pairs;
    return kernel == Kernel::kTilesBf16 || kernel == Kernel::kTilesInt8 ? nn::kernels::Arithmetic::kBf16Tiles
                                                                        : nn::kernels::Arithmetic::kFp32;
  }
  double peak(const bench::MachineLimits& limits) const {
    const bool exact = arithmetic() == nn::kernels::Arithmetic::kFp32 && kernel != Kernel::kLibraryBf16;
    return !exact ? limits.bfloat16_gflops : limits.gflops;
  }
};

void packed(const Setting& setting, const at::Tensor& x, const at::Tensor& w, const at::Tensor& scales, at::Tensor& y,
            nn::kernels::GemmScratch& scratch) {
  const nn::kernels::StoredMatrix matrix{.data = w.const_data_ptr(),
                                         .dtype = w.scalar_type(),
                                         .out = setting.out,
                                         .in = setting.in,
                                         .stride = setting.in,
                                         .scales = scales.const_data_ptr<float>()};
  const nn::kernels::Activations rows{
      .data = x.const_data_ptr<float>(), .rows = x.size(0), .stride = x.size(1), .arithmetic = setting.arithmetic()};
  const nn::kernels::Result result{.data = y.mutable_data_ptr<float>(), .stride = y.size(1)};
  setting.forward ? nn::kernels::gemm_nt(rows, matrix, result, scratch)
                  : nn::kernels::gemm_nn(rows, matrix, result, scratch);
}

// Upcasts 512 rows of the weight at a time, which fit into the cache.
void widened(const Setting& setting, const at::Tensor& x, const at::Tensor& w, at::Tensor& y) {
  for (int64_t o = 0; o < setting.out; o += 512) {
    const int64_t n = std::min<int64_t>(512, setting.out - o);
    const auto panel = w.narrow(0, o, n).to(at::kFloat);
    if (setting.forward) {
      auto part = y.narrow(1, o, n);
      at::mm_out(part, x, panel.t());
    } else {
      o == 0 ? at::mm_out(y, x.narrow(1, o, n), panel) : y.addmm_(x.narrow(1, o, n), panel);
    }
  }
}

void library(const Setting& setting, const at::Tensor& x, const at::Tensor& w, at::Tensor& y) {
  y.copy_(at::mm(x.to(at::kBFloat16), setting.forward ? w.t() : w));
}

/// Returns the machine's limits, measured at most a second ago: of a smoke run's short cases, many share a measurement.
bench::MachineLimits recent_limits(int64_t threads) {
  using Clock = std::chrono::steady_clock;
  static std::map<int64_t, std::pair<Clock::time_point, bench::MachineLimits>> known;
  const auto found = known.find(threads);
  if (found != known.end() && Clock::now() - found->second.first < std::chrono::seconds(1)) return found->second.second;
  const auto limits = bench::measure_limits(threads);
  known[threads] = {Clock::now(), limits};
  return limits;
}

void run(benchmark::State& state, const Setting& setting, int64_t threads) {
  at::set_num_threads(static_cast<int>(threads));
  const auto limit = recent_limits(threads);
  const auto dtype = stored_as(setting.kernel);
  const double bytes = static_cast<double>(setting.out * setting.in) * static_cast<double>(c10::elementSize(dtype));
  const double enough = static_cast<double>(bench::beyond_caches()) / bytes;  // of them are cold; of small ones none is
  std::vector<at::Tensor> weights(static_cast<size_t>(1 + std::min(enough, 512.0)));
  for (auto& w : weights) w = at::ones({setting.out, setting.in}, dtype);
  const auto scales = at::full({setting.out}, 0.01f);
  const auto x = at::full({setting.rows, setting.forward ? setting.in : setting.out}, 0.5f);
  auto y = at::zeros({setting.rows, setting.forward ? setting.out : setting.in});
  nn::kernels::GemmScratch scratch;
  size_t next = 0;
  for (auto _ : state) {
    const auto& w = weights[next++ % weights.size()];
    if (setting.kernel == Kernel::kWiden)
      widened(setting, x, w, y);
    else if (setting.kernel == Kernel::kLibraryBf16)
      library(setting, x, w, y);
    else
      packed(setting, x, w, scales, y, scratch);
  }
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
  };
  const double flops = 2e-9 * static_cast<double>(setting.rows * setting.out * setting.in);
  state.counters["GFLOP/s"] = rate(flops);
  state.counters["of_peak"] = rate(flops / setting.peak(limit));
  state.counters["GB/s"] = rate(1e-9 * bytes);
  state.counters["of_stream"] = rate(1e-9 * bytes / limit.gbytes);
}

void add(const std::string& name, const Setting& setting, int64_t threads) {
  benchmark::RegisterBenchmark(name.c_str(), run, setting, threads)
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.05)
      ->UseRealTime();
}

// Registers OLMoE's shapes, and a small one for a quick check.
void register_all() {
  const std::vector<int64_t> rows_of_a_step{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048};
  for (const auto& [out, in] :
       {std::pair<int64_t, int64_t>{1024, 2048}, {2048, 1024}, {2048, 2048}, {50304, 2048}, {96, 64}})
    for (const bool forward : {true, false})
      for (const int64_t rows : out > 96 ? rows_of_a_step : std::vector<int64_t>{3})
        for (const auto& [kernel, name] : kKernels)
          for (const int64_t threads : {1, 2})
            add(concat(out > 96 ? "olmoe_2048/" : "small/", out, "x", in, forward ? "/forward" : "/backward",
                       "/rows:", rows, "/", name, "/threads:", threads),
                Setting{kernel, rows, out, in, forward}, threads);
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
