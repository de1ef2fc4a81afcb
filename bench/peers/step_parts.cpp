/// Measures the parts of a LoRA training step at OLMoE's widths, each alone, forward and backward. It compares them
/// with the machine's limit for their operations or bytes, whichever takes longer. Weights are random bf16; every pass
/// has new routing. Usage: step_parts --batch B --length L --top-k K --layers N --rank R --threads T [--only attention
/// --repeats 100]. Prints one JSON line.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "base/plain/error.h"
#include "base/plain/json.h"
#include "base/system/process.h"
#include "bench/machine_limits.h"
#include "bench/peak_memory.h"
#include "bench/products_by_name.h"
#include "nn/attention/attention.h"
#include "nn/dense/linear.h"
#include "nn/dense/loss.h"
#include "nn/moe/experts.h"
#include "train/optimizer.h"

namespace evenkeel {
namespace {

constexpr int64_t kHidden = 2048, kWidth = 1024, kExperts = 64, kHeads = 16, kVocabulary = 50304;

struct Job {
  int64_t batch = 1, length = 256, top_k = 1, layers = 2, rank = 20;
  int threads = 2;
  std::string products = "measured", only;
  int64_t repeats = 3;
  int64_t tokens() const { return batch * length; }
};

/// The work of a part: giga-operations with the base and without it, gigabytes, and how often a step contains it.
struct Part {
  const char* name;
  double times, base_gflop, gflop, gbyte;
  std::function<void()> pass;
};

/// The limits for a part. Kernels that use a bfloat16 base exactly are compared with float32 multiply-adds, others with
/// the processor's bfloat16 rate.
struct Limits {
  bench::MachineLimits machine;
  double base_gflops;

  Limits(const bench::MachineLimits& measured, const nn::MatmulTable& products)
      : machine(measured),
        base_gflops(products == nn::MatmulTable(nn::MatmulKernel::kFp32Exact) ||
                            products == nn::MatmulTable(nn::MatmulKernel::kUpcast)
                        ? measured.gflops
                        : measured.bfloat16_gflops) {}
  double operations(const Part& part) const { return part.base_gflop / base_gflops + part.gflop / machine.gflops; }
  double bytes(const Part& part) const { return part.gbyte / machine.gbytes; }
};

double median_seconds(const std::function<void()>& pass, int64_t repeats) {
  std::vector<double> seconds;
  pass();
  for (int64_t i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    pass();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

/// Returns the library's rate for square matrices, GFLOP/s: the usual peak of a GEMM.
double library_gflops(at::ScalarType dtype) {
  constexpr int64_t kSide = 2048;
  const auto x = at::ones({kSide, kSide}, dtype);
  auto y = at::empty_like(x);
  const double seconds = median_seconds([&] { at::mm_out(y, x, x.t()); }, 3);
  return 2e-9 * static_cast<double>(kSide * kSide * kSide) / seconds;
}

at::Tensor weight(at::IntArrayRef sizes) { return at::randn(sizes).mul_(0.02).to(at::kBFloat16); }
at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(true); }
at::Tensor small_leaf(at::IntArrayRef sizes) { return at::randn(sizes).mul_(0.02).requires_grad_(true); }
lora::LoraFactors factors(int64_t experts, int64_t rank, int64_t in, int64_t out) {
  lora::LoraFactors lora;
  // Values are small, as in training: large gates would produce denormal numbers, which are slow.
  lora.a = experts ? small_leaf({experts, rank, in}) : small_leaf({rank, in});
  lora.b = experts ? small_leaf({experts, out, rank}) : small_leaf({out, rank});
  for (auto* factor : {&lora.a, &lora.b}) factor->mutable_grad() = at::zeros_like(*factor);
  return lora;
}

/// Runs the backward pass of y for a given gradient, and frees the gradients. All random numbers are drawn before the
/// timer starts, because drawing them costs as much as attention.
void flow_back(const at::Tensor& y, const at::Tensor& dy, std::initializer_list<at::Tensor> leaves) {
  y.backward(dy);
  for (const auto& each : leaves) each.mutable_grad().reset();
}

/// Returns twice the multiply-adds of a product and of its gradient, in giga-operations.
double gflop(int64_t rows, int64_t in, int64_t out) { return 4e-9 * static_cast<double>(rows * in * out); }

Part head_part(const Job& job, const nn::MatmulTable& products) {
  const nn::FrozenWeight head = weight({kVocabulary, kHidden});
  const auto hidden = leaf({job.tokens(), kHidden});
  const auto targets = at::randint(kVocabulary, {job.tokens()}, at::kLong);
  return {"head", 1, gflop(job.tokens(), kHidden, kVocabulary), 0, 2 * 2e-9 * kVocabulary * kHidden, [=] {
            flow_back(nn::cross_entropy(hidden, head, targets, products).sum, {}, {hidden});
          }};
}

Part projections_part(const Job& job, const nn::MatmulTable& products) {
  std::vector<nn::FrozenWeight> weights;
  for (int i = 0; i < 4; ++i) weights.push_back(weight({kHidden, kHidden}));
  const auto x = leaf({job.tokens(), kHidden}), dy = at::randn_like(x);
  return {"attention projections",
          static_cast<double>(job.layers),
          4 * gflop(job.tokens(), kHidden, kHidden),
          0,
          4 * 2 * 2e-9 * kHidden * kHidden,
          [=] {
            for (const auto& w : weights) flow_back(nn::linear(x, w, {}, products), dy, {x});
          }};
}

Part attention_part(const Job& job) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i <= job.batch; ++i) offsets.push_back(i * job.length);
  const double scores = 2.0 * static_cast<double>(job.tokens() * job.length * kHidden) / 2;  // causal
  const auto heads = [&] { return leaf({job.tokens(), kHeads, kHidden / kHeads}); };
  const auto q = heads(), k = heads(), v = heads(), dy = at::randn({job.tokens(), kHidden});
  return {"attention", static_cast<double>(job.layers),
          0,           3.5e-9 * 2 * scores,
          0,           [=] {
            flow_back(nn::packed_attention(q, k, v, offsets), dy, {q, k, v}); }};
}

Part experts_part(const Job& job, const nn::MatmulTable& products, bool with_lora) {
  nn::ExpertWeights weights;
  for (int64_t e = 0; e < kExperts; ++e) {
    weights.gate.emplace_back(weight({kWidth, kHidden}));
    weights.up.emplace_back(weight({kWidth, kHidden}));
    weights.down.emplace_back(weight({kHidden, kWidth}));
  }
  std::vector<lora::LoraFactors> lora;
  for (const bool down : {false, false, true})
    lora.push_back(factors(kExperts, job.rank, down ? kWidth : kHidden, down ? kHidden : kWidth));
  const auto x = leaf({job.tokens(), kHidden}), dy = at::randn_like(x);
  std::vector<nn::Routing> routings;  // used in turn, so that consecutive steps have different routing
  for (int64_t i = 0; i <= std::min<int64_t>(job.repeats, 16); ++i)
    routings.push_back(
        {std::get<1>(at::rand({job.tokens(), kExperts}).topk(job.top_k)), at::rand({job.tokens(), job.top_k})});
  const auto pass = std::make_shared<size_t>(0);
  const int64_t rows = job.tokens() * job.top_k;
  const double base = 3 * gflop(rows, kHidden, kWidth);
  const double beside = 3 * 6e-9 * static_cast<double>(rows * job.rank * (kHidden + kWidth));
  return {with_lora ? "experts with LoRA" : "experts",
          static_cast<double>(job.layers),
          base,
          with_lora ? beside : 0,
          2 * 3 * 2e-9 * static_cast<double>(kExperts * kHidden * kWidth),
          [=] {
            const auto& routing = routings[(*pass)++ % routings.size()];
            nn::ExpertFactors beside_experts;
            if (with_lora) beside_experts = {{.adapter = &lora[0]}, {.adapter = &lora[1]}, {.adapter = &lora[2]}};
            flow_back(nn::experts(x, routing, weights, beside_experts, products), dy, {x});
          }};
}

/// AdamW reads a parameter, its gradient and two moments, and writes all but the gradient.
Part optimizer_part(const Job& job) {
  std::vector<at::Tensor> leaves;
  for (const bool down : {false, false, true}) {
    const auto lora = factors(kExperts, job.rank, down ? kWidth : kHidden, down ? kHidden : kWidth);
    leaves.insert(leaves.end(), {lora.a, lora.b});
  }
  int64_t numbers = 0;
  for (const auto& tensor : leaves) numbers += tensor.numel();
  const auto adamw = std::make_shared<train::AdamW>(leaves, train::OptimizerConfig{});
  return {"AdamW", static_cast<double>(job.layers),      0,
          0,       16e-9 * static_cast<double>(numbers), [=] { adamw->step(-1, train::Gradients::kZeroed); }};
}

OrderedJson run(const Job& job) {
  at::set_num_threads(job.threads);
  const auto measured = bench::measure_limits(job.threads);
  const auto products = bench::products_by_name(job.products);
  const Limits limits(measured, products);
  OrderedJson parts = OrderedJson::array();
  const std::vector<std::function<Part()>> makers = {[&] { return head_part(job, products); },
                                                     [&] { return projections_part(job, products); },
                                                     [&] { return attention_part(job); },
                                                     [&] { return experts_part(job, products, false); },
                                                     [&] { return experts_part(job, products, true); },
                                                     [&] { return optimizer_part(job); }};
  for (const auto& make : makers) {
    const Part part = make();
    if (!job.only.empty() && job.only != part.name) continue;
    const double seconds = median_seconds(part.pass, job.repeats);
    const double limit = std::max(limits.operations(part), limits.bytes(part));
    parts.push_back({{"part", part.name},
                     {"seconds", part.times * seconds},
                     {"limit", part.times * limit},
                     {"bound", limits.operations(part) > limits.bytes(part) ? "operations" : "bytes"},
                     {"share", limit / seconds}});
  }
  EK_CHECK(!parts.empty(), kConfig, "--only is \"", job.only,
           "\", which is no part of a step: see what runs without it");
  const bool narrow = limits.base_gflops > measured.gflops;
  return {{"gflops", limits.base_gflops},
          {"library_gflops", library_gflops(narrow ? at::kBFloat16 : at::kFloat)},

          {"float32_gflops", measured.gflops},
          {"gbytes", measured.gbytes},
          {"parts", std::move(parts)}};
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::settle_process(argv);
  CLI::App program("The parts of a LoRA training step, each alone, against the machine's limits");
  evenkeel::Job job;
  program.add_option("--batch", job.batch);
  program.add_option("--length", job.length);
  program.add_option("--top-k", job.top_k);
  program.add_option("--layers", job.layers);
  program.add_option("--rank", job.rank);
  program.add_option("--threads", job.threads);
  program.add_option("--only", job.only, "the part of this name alone");
  program.add_option("--repeats", job.repeats, "passes of which the median is taken")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  program.add_option("--products", job.products, evenkeel::bench::kProductsHelp)->capture_default_str();
  CLI11_PARSE(program, argc, argv);
  try {
    std::cout << evenkeel::run(job).dump() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "step_parts: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
