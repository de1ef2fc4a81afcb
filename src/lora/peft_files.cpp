#include "lora/peft_files.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/plain/folders.h"

namespace evenkeel::lora::peft {
namespace {

std::string module_of(const std::string& name) {
  return name.substr(kPrefix.size(), name.size() - kPrefix.size() - kA.size());
}

at::Tensor finite(const at::Tensor& factor, const std::string& name) {
  auto stored = factor.to(at::kFloat);
  EK_CHECK(is_finite(stored), kNumeric, "the adapter's tensor ", name,
           " holds a value that is not finite in float32, the type of adapter files");
  return stored;
}

}  // namespace

std::string_view last_name(std::string_view name) { return name.substr(name.rfind('.') + 1); }

void require_one_scaling(const AdapterState& adapters, const PeftInfo& info) {
  const double expected = info.alpha / static_cast<double>(info.rank);
  for (const auto& [site, f] : adapters)
    EK_CHECK(!f.core.defined() && f.rank() == info.rank && std::abs(f.scaling - expected) <= 1e-9 * std::abs(expected),
             kInternal, "PEFT adapter: site ", site, " has rank ", f.rank(), " and scaling ", f.scaling,
             f.core.defined() ? " and a core" : "", ", PEFT holds one rank ", info.rank, " with scaling ", expected);
}

OrderedJson adapter_config(const PeftInfo& info) {
  const OrderedJson none = nullptr, empty = OrderedJson::object();
  const OrderedJson base = info.base_model.empty() ? none : OrderedJson(info.base_model);
  return {{"peft_type", "LORA"},     {"task_type", "CAUSAL_LM"}, {"base_model_name_or_path", base},
          {"r", info.rank},          {"lora_alpha", info.alpha}, {"target_modules", OrderedJson::array()},
          {"lora_dropout", 0.0},     {"bias", "none"},           {"init_lora_weights", true},
          {"fan_in_fan_out", false}, {"inference_mode", true},   {"modules_to_save", none},
          {"use_rslora", false},     {"use_dora", false},        {"rank_pattern", empty},
          {"alpha_pattern", empty},  {"layers_pattern", none},   {"layers_to_transform", none},
          {"revision", none}};
}

at::Tensor take_factor(TensorMap& left, const std::string& name, at::IntArrayRef sizes, const std::string& file) {
  const auto found = left.find(name);
  EK_CHECK(found != left.end(), kCheckpoint, file, ": tensor ", name, " is missing");
  auto tensor = std::move(found->second);
  left.erase(found);
  EK_CHECK(tensor.is_floating_point(), kCheckpoint, file, ": tensor ", name, " is not floating-point");
  EK_CHECK(tensor.sizes() == sizes, kCheckpoint, file, ": tensor ", name, " is ", tensor.sizes(), ", expected ", sizes);
  return tensor.to(at::kFloat);
}

void write_folder(const fs::path& folder, const FolderContent& content) {
  TensorMap shapes;
  for (const auto& [module, pair] : content.pairs) {
    shapes.emplace(concat(kPrefix, module, kA), at::empty(pair.a, at::device(at::kMeta)));
    shapes.emplace(concat(kPrefix, module, kB), at::empty(pair.b, at::device(at::kMeta)));
  }
  make_folders(folder);
  stream_safetensors(folder / "adapter_model.safetensors", shapes,
                     [&](const std::string& name) {
                       const auto factors = content.pairs.at(module_of(name)).make();
                       return finite(name.ends_with(kA) ? factors.a : factors.b, name);
                     },
                     {{"format", "pt"}});
  write_file_atomic(folder / "adapter_config.json", content.config.dump(2) + "\n");
}

}  // namespace evenkeel::lora::peft
