/// Measures the CUDA kernels beside the operators that they replace, at the sizes of OLMoE-1B-7B and 2,048 tokens with
/// 8 experts each. Prints one JSON line for each:
///   {"what", "kernel", "error", "operators_error": apart from float64 by norm, the largest of the outputs,
///    "us", "operators_us": of one call until its work is done, "gb_per_s", "operators_gb_per_s": of inputs and
///    outputs}
/// A line with "skipped" says why the kernels cannot compute. --tiny makes few calls of small sizes.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <numeric>
#include <vector>

#include "base/plain/clock.h"
#include "base/plain/json.h"
#include "base/system/device.h"
#include "base/system/process.h"
#include "nn/aten_engine/attention.h"
#include "nn/aten_engine/grouped.h"
#include "nn/aten_engine/routing.h"
#include "nn/aten_engine/rows.h"
#include "nn/cuda_kernels/kernels.h"
#include "nn/cuda_kernels/norm.h"
#include "nn/cuda_kernels/rows.h"
#include "nn/cuda_kernels/swiglu.h"

namespace evenkeel {
namespace {

struct Job {
  std::string device = "cuda";
  bool tiny = false;
};

struct Sizes {
  int64_t tokens, hidden, width, experts, top_k, heads;
  int64_t slots() const { return tokens * top_k; }
};

using Outputs = std::vector<at::Tensor>;

/// Work that a kernel or operators do. `make` makes the inputs, the same numbers in each type.
struct Work {
  std::string what, kernel;
  std::function<std::function<Outputs()>(at::ScalarType)> make;
  int64_t bytes;  // read and written in bfloat16, or float32 where the work has no other
};

class Inputs {
 public:
  Inputs(c10::Device device, at::ScalarType type) : device_(device), type_(type) {}
  /// Random numbers that bfloat16 holds, so that all types have the same.
  at::Tensor random(at::IntArrayRef sizes, bool narrow = true) {
    at::manual_seed(++seed_);
    const auto numbers = at::randn(sizes).to(at::kBFloat16).to(device_);
    return numbers.to(narrow || type_ == at::kDouble ? type_ : at::kFloat);
  }

 private:
  c10::Device device_;
  at::ScalarType type_;
  uint64_t seed_ = 0;
};

Outputs swiglu_forward(const at::Tensor& gate_up, const at::Tensor& lora, int64_t width) {
  auto own = nn::cuda::swiglu(gate_up, lora);
  if (own) return {*own};
  const auto sum = gate_up.add_(lora);
  return {at::silu(sum.narrow(1, 0, width)).mul_(sum.narrow(1, width, width))};
}

Outputs swiglu_backward(const at::Tensor& gate_up, const at::Tensor& dh, const at::Tensor& w_S1,
                        const at::Tensor& order) {
  if (const auto own = nn::cuda::swiglu_backward(gate_up, dh, {}, w_S1, order, true, true))
    return {own->gate_up_SG, own->weights_S, own->hidden_SF};
  const int64_t width = dh.size(1);
  const auto g = gate_up.narrow(1, 0, width), u = gate_up.narrow(1, width, width), silu = at::silu(g), h = silu * u;
  const auto dw = (h * dh).sum(1, false, dh.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const auto weighted = dh * w_S1;
  auto dgu = at::empty_like(gate_up);
  auto dg = dgu.narrow(1, 0, width), du = dgu.narrow(1, width, width);
  at::silu_backward_out(dg, weighted * u, g);
  at::mul_out(du, weighted, silu);
  return {dgu, dw.index_select(0, order), h};  // the order is its own inverse here
}

Outputs residual(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight) {
  if (const auto own = nn::cuda::residual_norm(x, added, weight, 1e-5, added.scalar_type()))
    return {own->sum_RD, own->norm_RD};
  const auto sum = x + added;
  return {sum, std::get<0>(at::_fused_rms_norm(sum, {sum.size(1)}, weight, 1e-5)).to(added.scalar_type())};
}

Outputs summed(const at::Tensor& x, const nn::aten::Slots& slots, const at::Tensor& weights) {
  if (const auto own = nn::cuda::summed_rows(x, {}, slots.place_S, slots.begins_T, weights.view({-1}))) return {*own};
  return {nn::aten::summed_choices(x, slots, weights)};
}

std::vector<Work> work_of(const Sizes& s, c10::Device device) {
  constexpr int64_t kNarrow = 2, kWide = 4;  // bytes
  const int64_t slots = s.slots(), gates = slots * s.width, states = s.tokens * s.hidden, head = s.hidden / s.heads;
  const auto experts_TK =
      at::arange(slots, at::device(device).dtype(at::kLong)).mul_(7).remainder(s.experts).view({s.tokens, s.top_k});
  const auto reversed = at::arange(slots - 1, -1, -1, experts_TK.options());
  const auto rotary = [=] {
    const auto angle = at::randn({s.tokens, head / 2}).to(at::kFloat);
    return nn::RotaryTable{at::cat({angle.cos(), angle.cos()}, 1).to(device),
                           at::cat({angle.sin(), angle.sin()}, 1).to(device)};
  }();
  std::vector<Work> all;
  all.push_back({"SwiGLU, forward", "swiglu",
                 [=](at::ScalarType type) {
                   Inputs in(device, type);
                   return [=, gate_up = in.random({slots, 2 * s.width}), lora = in.random({slots, 2 * s.width})] {
                     return swiglu_forward(gate_up, lora, s.width);
                   };
                 },
                 7 * gates * kNarrow});
  all.push_back({"SwiGLU, backward", "swiglu",
                 [=](at::ScalarType type) {
                   Inputs in(device, type);
                   return [=, gate_up = in.random({slots, 2 * s.width}), dh = in.random({slots, s.width}),
                           w = in.random({slots, 1})] { return swiglu_backward(gate_up, dh, w, reversed); };
                 },
                 6 * gates * kNarrow});
  all.push_back({"norm and rotation of heads", "norm",
                 [=](at::ScalarType type) {
                   Inputs in(device, type);
                   const nn::HeadSteps steps{
                       .norm = in.random({s.hidden}, /*narrow=*/false), .norm_eps = 1e-5, .rotary = rotary};
                   return [=, x = in.random({s.tokens, s.heads, head})]() -> Outputs {
                     return {nn::aten::apply_steps(x, steps)};
                   };
                 },
                 2 * states * kNarrow});
  all.push_back({"residual stream and norm", "norm",
                 [=](at::ScalarType type) {
                   Inputs in(device, type);
                   return [=, x = in.random({s.tokens, s.hidden}, false), added = in.random({s.tokens, s.hidden}),
                           weight = in.random({s.hidden}, false)] { return residual(x, added, weight); };
                 },
                 states * (2 * kWide + 2 * kNarrow)});
  all.push_back(
      {"gather of rows", "rows",
       [=](at::ScalarType type) {
         Inputs in(device, type);
         const auto token = nn::aten::slots_of(experts_TK, s.experts).token_S;
         return [=, x = in.random({s.tokens, s.hidden})]() -> Outputs { return {nn::aten::selected_rows(x, token)}; };
       },
       (slots * s.hidden + states) * kNarrow});
  all.push_back({"weighted sum of rows", "rows",
                 [=](at::ScalarType type) {
                   Inputs in(device, type);
                   const auto placed = nn::aten::slots_of(experts_TK, s.experts);
                   return [=, x = in.random({slots, s.hidden}), w = in.random({s.tokens, s.top_k})] {
                     return summed(x, placed, w);
                   };
                 },
                 (slots * s.hidden + states) * kNarrow});
  all.push_back({"selection of experts", "routing",
                 [=](at::ScalarType type) {
                   Inputs in(device, type);
                   return [=, logits = in.random({s.tokens, s.experts}, false)]() -> Outputs {
                     const auto routing = nn::aten::route(logits, {.top_k = s.top_k}, at::Tensor(), false);
                     return {routing.weights};
                   };
                 },
                 s.tokens * (s.experts * 2 + s.top_k * 3) * kWide});
  all.push_back({"sorting of choices", "routing",
                 [=](at::ScalarType) {
                   return [=]() -> Outputs {
                     const auto sorted = nn::aten::slots_of(experts_TK, s.experts);
                     return {sorted.order_S, sorted.place_S, sorted.token_S, sorted.ends_E};
                   };
                 },
                 slots * 4 * 8});
  return all;
}

double apart(const Outputs& ours, const Outputs& exact) {
  double most = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto wide = exact[i].to(at::kCPU, at::kDouble);
    const double size = std::max(wide.norm().item<double>(), 1e-30);
    most = std::max(most, (ours[i].to(at::kCPU, at::kDouble) - wide).norm().item<double>() / size);
  }
  return most;
}

double seconds_of(const std::function<Outputs()>& call, c10::Device device, int64_t calls) {
  call(), synchronize(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) call();
  synchronize(device);
  return seconds_since(begin) / static_cast<double>(calls);
}

/// The error and the time of one way to compute.
OrderedJson measured(const Work& work, c10::Device device, const Outputs& exact, nn::cuda::KernelSet kernels,
                     int64_t calls, const std::string& prefix) {
  nn::cuda::use_kernels(device, kernels);
  const auto call = work.make(at::kBFloat16);
  const double error = apart(call(), exact), seconds = seconds_of(call, device, calls);
  nn::cuda::use_kernels(device, {});
  return {{prefix + "error", error},
          {prefix + "us", 1e6 * seconds},
          {prefix + "gb_per_s", static_cast<double>(work.bytes) / seconds / 1e9}};
}

void run(const Job& job) {
  const auto device = find_device(job.device, "--device");
  settle_device(device);
  const at::NoGradGuard no_grad;
  const auto why_not = nn::cuda::why_no_kernels(device);
  const Sizes sizes = job.tiny ? Sizes{12, 32, 16, 6, 2, 2} : Sizes{2048, 2048, 1024, 64, 8, 16};
  for (const auto& work : work_of(sizes, device)) {
    OrderedJson line{{"what", work.what}, {"kernel", work.kernel}};
    if (!why_not.empty()) {
      line["skipped"] = why_not;
    } else {
      const auto exact = work.make(at::kDouble)();
      const int64_t calls = job.tiny ? 2 : 200;
      line.update(measured(work, device, exact, nn::cuda::KernelSet::all(), calls, ""));
      line.update(measured(work, device, exact, {}, calls, "operators_"));
    }
    std::cout << line.dump() << std::endl;
  }
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::settle_process(argv);
  CLI::App program("The CUDA kernels beside the operators that they replace");
  evenkeel::Job job;
  program.add_option("--device", job.device, "cpu, cuda or cuda:N")->capture_default_str();
  program.add_flag("--tiny", job.tiny, "few calls of small sizes");
  CLI11_PARSE(program, argc, argv);
  try {
    evenkeel::run(job);
  } catch (const std::exception& error) {
    std::cerr << "kernel_rates: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
