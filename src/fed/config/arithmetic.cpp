#include "fed/config/arithmetic.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "base/system/device.h"
#include "base/system/device_graph.h"
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

/// Returns true if the model has experts.
bool is_sparse(const ModelSection& section) {
  return models::load_shape(models::find_model_folder(section.path))->spec().num_experts > 0;
}

/// Returns why the passes of a model with experts cannot be recorded: their grouped products would wait for the host
/// (nn/aten_engine/grouped.h). Empty if they can.
std::string why_experts_wait(ModelSection section, c10::Device device) {
  section.settle_products({});
  if (section.compute_dtype != ComputeDtype::kBFloat16)
    return "products of experts in float32 wait for the host; model.compute_dtype = \"bfloat16\" does not";
  const auto architecture = device_identity(device).architecture;
  const bool is_known = architecture.empty() || architecture.starts_with("9.") || architecture.starts_with("10.");
  return is_known ? ""
                  : concat("products of experts wait for the host on GPUs of compute capability ", architecture,
                           ", needed: 9 or 10");
}

/// Returns why_no_graphs(), which is logged where a GPU computes and the choice is open.
std::string chosen_graphs(const ModelSection& model) {
  if (model.graphs == GraphsChoice::kOff) return "they are off";
  if (names_gpu(model.device) && gpu_count() == 0) return "there is no GPU here";
  auto why = why_no_graphs(model);
  if (model.graphs == GraphsChoice::kAuto && names_gpu(model.device) && !why.empty())
    log::info("[graphs] operators are started one by one (model.graphs): ", why);
  return why;
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

void take_arithmetic(const ModelSection& from, ModelSection& to) {
  to.device = from.device;
  to.engine = from.engine;
  to.graphs = from.graphs;
  to.cuda_kernels = from.cuda_kernels;
  to.compute_dtype = from.compute_dtype;
  to.products = from.products;
}

MachineChoices machine_choices(const ExperimentConfig& config) {
  MachineChoices machine{.threads = at::intraop_default_num_threads(), .products = {}};
  machine.device = find_device("auto", "model.device").is_cpu() ? "cpu" : "cuda";
  auto model = config.model;
  if (model.device == "auto") model.device = machine.device;
  machine.no_graphs = chosen_graphs(model);
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
  model.graphs = GraphsChoice::kOff;
  model.cuda_kernels = "none";
  const bool on_gpu = !find_device(device, "--device").is_cpu();
  if (on_gpu && model.compute_dtype == ComputeDtype::kMeasured) {
    model.compute_dtype = ComputeDtype::kAuto;
    model.products = {};
  }
  model.settle({.threads = 1, .products = {}, .device = on_gpu ? "cuda" : "cpu"});
}

std::string why_no_graphs(const ModelSection& model) {
  if (!names_gpu(model.device)) return "the device is not a GPU";
  const auto device = find_device(model.device, "model.device");
  if (is_sparse(model))
    if (const auto why = why_experts_wait(model, device); !why.empty()) return why;
  return evenkeel::why_no_graphs(device);
}

void choose_graphs(ModelSection& model) {
  model.graphs = GraphsChoice::kAuto;
  model.settle_graphs(chosen_graphs(model));
}

void require_graphs(const ModelSection& model) {
  if (model.graphs != GraphsChoice::kOn) return;
  const auto why = why_no_graphs(model);
  EK_CHECK(why.empty(), kConfig, "the run records its passes (model.graphs = \"on\"), but ", why,
           "; --set model.graphs=off goes on without, with other bits");
}

}  // namespace evenkeel::fed
