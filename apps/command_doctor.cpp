#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "apps/commands.h"
#include "models/causal_lm.h"
#include "nn/kernels/frozen_matmul.h"

namespace evenkeel {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr int64_t kRank = 20;
constexpr int64_t kTokens = 8 * 256;  // a micro-batch of the paper: 8 sequences of 256 tokens

std::string fixed(double value, int decimals, int width = 0) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%*.*f", width, decimals, value);
  return text.data();
}

/// First value of `key` in a "key : value" file of /proc; empty when there is none.
std::string proc_value(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const auto start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? std::string() : line.substr(start);
  }
  return {};
}

/// The instruction sets that matter to matrix products, of those the processor has.
std::string instruction_sets() {
  std::istringstream flags(proc_value("/proc/cpuinfo", "flags") + " " + proc_value("/proc/cpuinfo", "Features"));
  constexpr std::array<std::string_view, 16> kInteresting = {
      "sse4_2",      "avx",         "f16c",     "fma",      "avx2",  "avx512f", "avx512_vnni", "avx_vnni",
      "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "asimd", "bf16",    "sve",         "i8mm"};
  std::vector<std::string> found;
  for (std::string flag; flags >> flag;)
    if (std::find(kInteresting.begin(), kInteresting.end(), flag) != kInteresting.end()) found.push_back(flag);
  return found.empty() ? "unknown" : join(found, " ");
}

double proc_gibibytes(std::string_view key) {
  std::istringstream text(proc_value("/proc/meminfo", key));
  double kibibytes = 0;
  text >> kibibytes;
  return kibibytes / 1024 / 1024;
}

/// What a container may use; infinite without a limit.
double limit_gibibytes() {
  for (const auto* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream in(file);
    double bytes = 0;
    if (in >> bytes && bytes < 1e15) return bytes / kGiB;
  }
  return std::numeric_limits<double>::infinity();
}

double usable_gibibytes() { return std::min(proc_gibibytes("MemAvailable"), limit_gibibytes()); }

void print_machine() {
  const auto model = proc_value("/proc/cpuinfo", "model name");
  std::cout << "processor     " << (model.empty() ? "unknown" : model) << '\n'
            << "cores         " << std::thread::hardware_concurrency() << ", threads used " << at::get_num_threads()
            << '\n'
            << "instructions  " << instruction_sets() << '\n'
            << "memory        " << fixed(proc_gibibytes("MemTotal"), 1) << " GiB, available "
            << fixed(usable_gibibytes(), 1) << " GiB\n";
}

void print_matmul() {
  std::cout << "\nproducts with a bfloat16 base, GFLOP/s on weights that are not in cache\n"
            << "   rows | widen x W^T   widen dY W | native x W^T  native dY W\n";
  double widen = 0, native = 0;  // seconds per product, up to a common factor
  for (const auto& row : measure_matmul_paths()) {
    std::cout << fixed(static_cast<double>(row.rows), 0, 7) << " |" << fixed(row.widen_forward, 1, 12)
              << fixed(row.widen_backward, 1, 13) << " |" << fixed(row.native_forward, 1, 13)
              << fixed(row.native_backward, 1, 13) << '\n';
    const auto rows = static_cast<double>(row.rows);
    widen += rows / row.widen_forward + rows / row.widen_backward;
    native += rows / row.native_forward + rows / row.native_backward;
  }
  std::cout << "widen: weight panels become float32; native: the library's bfloat16 product\n"
            << "here the whole table takes " << fixed(std::max(widen, native) / std::min(widen, native), 2)
            << " times less with " << config::name_of(widen <= native ? MatmulPath::kWiden : MatmulPath::kNative)
            << "; compute_dtype = \"auto\" measures again when a run is created\n";
}

/// Bytes of a training process beyond the frozen base.
struct Needs {
  double adapters = 0, activations = 0;
};

/// Adapters: the server's state, and one client's copy with gradient and two moments, float32. Activations: what a step
/// of kTokens keeps for its backward: per layer about 16 hidden rows, and per active expert its input, three inner rows
/// and its output.
Needs needs_of(const CausalLm& model, int64_t top_k) {
  std::vector<std::string> targets{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  const auto& spec = model.spec();
  if (spec.num_experts > 0) targets.emplace_back("gate");
  double parameters = 0;
  for (const auto& [name, site] : model.sites(targets))
    parameters += static_cast<double>(std::max<int64_t>(site.experts, 1) * kRank * (site.in + site.out));
  const auto d = static_cast<double>(spec.hidden_size), f = static_cast<double>(spec.intermediate_size);
  const auto k = static_cast<double>(std::max<int64_t>(top_k, 1));
  const double per_token = 4 * static_cast<double>(spec.num_layers) * (16 * d + k * (2 * d + 3 * f));
  return {5 * 4 * parameters, per_token * static_cast<double>(kTokens)};
}

double base_bytes(const CausalLm& model, double element_size) {
  double bytes = 0;
  for (const auto& [name, tensor] : model.parameters())
    bytes += static_cast<double>(tensor.numel()) *
             (element_size > 0 ? element_size : static_cast<double>(tensor.element_size()));
  return bytes;
}

/// K of the budgets 1/8 to 1; one row of a dense model.
std::vector<int64_t> top_ks(const ModelSpec& spec) {
  if (spec.num_experts == 0) return {0};
  std::vector<int64_t> all;
  for (const int64_t divisor : {8, 4, 2, 1})
    if (const int64_t k = spec.top_k / divisor; k > 0 && (all.empty() || all.back() != k)) all.push_back(k);
  return all;
}

void print_fit(const std::string& path) {
  const auto model = load_model(resolve_model_path(path));
  struct Precision {
    std::string_view name;
    double element_size;
  };
  const double usable = usable_gibibytes();
  std::cout << "\n"
            << path << ": training with rank " << kRank << " on every target, 8 x 256 tokens per micro-batch, GiB\n"
            << "   base dtype   K |   base  adapters  activations |  total  fits\n";
  for (const auto& precision : {Precision{"checkpoint", 0}, Precision{"bfloat16", 2}, Precision{"float32", 4}})
    for (const int64_t top_k : top_ks(model->spec())) {
      const auto needs = needs_of(*model, top_k);
      const double base = base_bytes(*model, precision.element_size) / kGiB;
      const double total = base + (needs.adapters + needs.activations) / kGiB;
      std::cout << std::string(13 - precision.name.size(), ' ') << precision.name
                << fixed(static_cast<double>(top_k), 0, 4) << " |" << fixed(base, 2, 7)
                << fixed(needs.adapters / kGiB, 2, 10) << fixed(needs.activations / kGiB, 2, 13) << " |"
                << fixed(total, 2, 7) << (total <= usable ? "  yes" : "  no") << '\n';
    }
  std::cout << "K: experts per token at budgets 1/8 to 1; a base in the checkpoint's dtype is mapped, its pages can be "
               "dropped under pressure\n";
}

}  // namespace

void add_doctor_command(CLI::App& program) {
  auto model = std::make_shared<std::string>();
  auto* command = program.add_subcommand("doctor", "what this machine can do, and which model fits");
  command->description(
      "Example: evenkeel doctor --model models/OLMoE-1B-7B-0924\n\n"
      "Prints cores, instruction sets, memory and the measured speed of both ways to multiply with a bfloat16 base.");
  command->add_option("--model", *model, "also: which precision and budget of this model fits into memory");
  command->callback([model] {
    print_machine();
    print_matmul();
    if (!model->empty()) print_fit(*model);
  });
}

}  // namespace evenkeel
