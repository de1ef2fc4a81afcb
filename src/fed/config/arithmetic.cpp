#include "fed/config/arithmetic.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/system/device.h"
#include "base/system/threads.h"
#include "models/checkpoint.h"
#include "nn/cuda_kernels/kernels.h"
#include "nn/dense/matmul_probe.h"

namespace evenkeel::fed {
namespace {

/// Returns true if the checkpoint stores 16-bit weights, or does not name a type. (transformers 5 names the key
/// `dtype`.)
bool stores_16_bits(const ModelSection& section, const fs::path& folder) {
  if (section.dtype == models::BaseDtype::kBFloat16) return true;
  const auto config = models::ModelConfig::load(folder / "config.json");
  const auto type = config.string_or("torch_dtype", config.string_or("dtype", "bfloat16"));
  return type == "bfloat16" || type == "float16";
}

/// Returns true if measuring kernels can help: the model has a large weight in 16 bits or int8.
bool gains_from_choice(const ModelSection& section) {
  const auto folder = models::find_model_folder(section.path);
  const auto parameters = models::load_shape(folder)->parameters();
  const bool large = std::any_of(parameters.begin(), parameters.end(), [](const auto& entry) {
    return entry.second.dim() == 2 && entry.second.numel() >= nn::kMinMeasuredWeight;
  });
  return large && (section.base_format == models::BaseFormat::kInt8 || stores_16_bits(section, folder));
}

/// Returns why CUDA kernels cannot compute, which is logged where a GPU computes and the choice is open.
std::string chosen_cuda_kernels(const ModelSection& model) {
  if (model.cuda_kernels == "none") return "they are off";
  auto why = nn::cuda::why_no_kernels(find_device(model.device, "model.device"));
  if (model.cuda_kernels == "auto" && names_gpu(model.device) && !why.empty())
    log::info("[kernels] LibTorch's operators compute (model.cuda_kernels): ", why);
  return why;
}

}  // namespace

MachineChoices machine_choices(const ExperimentConfig& config) {
  MachineChoices machine{.threads = at::intraop_default_num_threads(), .products = {}};
  machine.device = find_device("auto", "model.device").is_cpu() ? "cpu" : "cuda";
  auto model = config.model;
  if (model.device == "auto") model.device = machine.device;
  machine.no_cuda_kernels = chosen_cuda_kernels(model);
  const bool open = !model.uses_operators() && model.compute_dtype == ComputeDtype::kAuto && !model.products.given() &&
                    !model.stores_wide();
  if (!open || !gains_from_choice(model)) return machine;
  const int before = at::get_num_threads();
  use_pool_threads(config.threads > 0 ? config.threads : machine.threads);
  machine.products = nn::fastest_kernels(
      nn::measure_matmuls(model.base_format == models::BaseFormat::kInt8 ? at::kChar : at::kBFloat16));
  at::set_num_threads(before);
  return machine;
}

void compute_on(ModelSection& model, const std::string& device) {
  if (device.empty() || device == model.device) return;
  model.device = device;
  model.engine = EngineChoice::kAuto;
  model.cuda_kernels = "none";
  const bool on_gpu = !find_device(device, "--device").is_cpu();
  if (on_gpu && model.compute_dtype == ComputeDtype::kMeasured) {
    model.compute_dtype = ComputeDtype::kAuto;
    model.products = {};
  }
  model.settle({.threads = 1, .products = {}, .device = on_gpu ? "cuda" : "cpu"});
}

}  // namespace evenkeel::fed
