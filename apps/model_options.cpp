#include "apps/model_options.h"

#include <ATen/Parallel.h>

#include "base/limits.h"
#include "lora/peft.h"

namespace evenkeel {
namespace {

void check_top_k(const ModelSpec& spec, int64_t top_k) {
  if (spec.num_experts == 0)
    EK_CHECK(top_k == 0, kConfig, "--top-k is ", top_k, ", but this model has no experts");
  else
    EK_CHECK(top_k >= 0 && top_k <= spec.num_experts, kConfig, "--top-k is ", top_k, ", allowed: 1 .. ",
             spec.num_experts, " (0: the checkpoint's ", spec.top_k, ")");
}

}  // namespace

CLI::Option* ModelOptions::add_to(CLI::App& command) {
  auto* folder = command.add_option("--model", model, "Hugging Face folder, or builtin:tiny-olmoe");
  command.add_option("--adapter", adapter, "PEFT folder of a LoRA adapter");
  command.add_option("--top-k", top_k, "experts per token (default: the checkpoint's)");
  command.add_option("--gate-norm", gate_norm,
                     "weights of the selected experts: olmoe_native, renorm_selected or softmax_all");
  command.add_option("--dtype", dtype,
                     "storage of the weights: checkpoint (as in the file), float32, bfloat16, float64");
  command.add_option("--threads", threads, "processor threads (default: all cores)");
  return folder;
}

void use_threads(int64_t threads) {
  limits::check_integer("--threads", threads, 0, limits::kThreads);
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
}

OpenedModel open_model(const ModelOptions& options) {
  const auto dtype = parse_enum<BaseDtype>("--dtype", options.dtype);
  const auto gate_norm = parse_enum<GateNorm>("--gate-norm", options.gate_norm);
  use_threads(options.threads);
  OpenedModel opened;
  opened.folder = resolve_model_path(options.model);
  opened.model = load_model(opened.folder, dtype);
  check_top_k(opened.model->spec(), options.top_k);
  opened.router.top_k = options.top_k;
  opened.router.gate_norm = gate_norm;
  if (!options.adapter.empty()) opened.adapters = load_peft_adapter(options.adapter, opened.model->all_sites());
  return opened;
}

}  // namespace evenkeel
