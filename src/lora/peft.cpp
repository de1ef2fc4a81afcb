#include "lora/peft.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "lora/modules.h"
#include "lora/peft_files.h"

namespace evenkeel {
namespace {

using peft::kA;
using peft::kB;
using peft::kPrefix;

std::string_view last_name(std::string_view module) { return module.substr(module.rfind('.') + 1); }

/// What adapter_config.json says that matters here.
struct Header {
  int64_t rank = 0;
  double scaling = 1.0;
};

/// What a key of adapter_config.json may hold for the adapter to be plain LoRA.
struct KnownKey {
  std::string_view name, allowed;
  bool (*is_plain)(const Json& value);
};

bool anything(const Json& /*value*/) { return true; }
bool is_false(const Json& value) { return value == false; }
bool is_boolean(const Json& value) { return value.is_boolean(); }
bool is_rank(const Json& value) { return value.is_number_integer() && value > 0 && value <= 65536; }
bool is_number(const Json& value) { return value.is_number(); }
bool is_nothing(const Json& value) { return value.is_null() || (value.is_structured() && value.empty()); }
bool is_text(const Json& value) { return value.is_null() || value.is_string(); }

/// Other ways to start change the base model as well.
bool starts_plainly(const Json& value) { return value.is_boolean() || value == "gaussian" || value == "orthogonal"; }

/// Every key that PEFT 0.17 to 0.21 writes; a key that is missing means its plain value. Names, dropout and versions do
/// not change what saved factors mean: which modules are adapted, the tensors say themselves.
constexpr KnownKey kKnownKeys[] = {
    {"peft_type", "\"LORA\"", [](const Json& value) { return value == "LORA"; }},
    {"r", "a whole number from 1 to 65536", is_rank},
    {"lora_alpha", "a number", is_number},
    {"use_rslora", "true or false", is_boolean},
    {"bias", "\"none\"", [](const Json& value) { return value == "none"; }},
    {"init_lora_weights", "true, false, \"gaussian\", \"orthogonal\" (others change the base model too)",
     starts_plainly},
    {"fan_in_fan_out", "false", is_false},
    {"use_dora", "false", is_false},
    {"use_qalora", "false", is_false},
    {"lora_bias", "false", is_false},
    {"ensure_weight_tying", "false", is_false},
    {"rank_pattern", "nothing there", is_nothing},
    {"alpha_pattern", "nothing there", is_nothing},
    {"modules_to_save", "nothing there", is_nothing},
    {"target_parameters", "nothing there", is_nothing},
    {"layer_replication", "nothing there", is_nothing},
    {"trainable_token_indices", "nothing there", is_nothing},
    {"loftq_config", "nothing there", is_nothing},
    {"corda_config", "nothing there", is_nothing},
    {"eva_config", "nothing there", is_nothing},
    {"megatron_config", "nothing there", is_nothing},
    {"alora_invocation_tokens", "nothing there", is_nothing},
    {"arrow_config", "nothing there", is_nothing},
    {"kasa_config", "nothing there", is_nothing},
    {"lora_ga_config", "nothing there", is_nothing},
    {"monteclora_config", "nothing there", is_nothing},
    {"use_bdlora", "false or nothing there", [](const Json& value) { return is_false(value) || is_nothing(value); }},
    {"velora_config", "nothing there", is_nothing},
    {"task_type", "a text", is_text},
    {"base_model_name_or_path", "a text", is_text},
    {"revision", "a text", is_text},
    {"peft_version", "a text", is_text},
    {"megatron_core", "a text", is_text},
    {"inference_mode", "true or false", is_boolean},
    {"lora_dropout", "a number", is_number},
    {"qalora_group_size", "a number", is_number},
    {"auto_mapping", "anything", anything},
    {"target_modules", "anything", anything},
    {"exclude_modules", "anything", anything},
    {"layers_to_transform", "anything", anything},
    {"layers_pattern", "anything", anything},
};

const KnownKey& known_key(const std::string& name, const std::string& file) {
  const auto found = std::find_if(std::begin(kKnownKeys), std::end(kKnownKeys),
                                  [&](const KnownKey& known) { return known.name == name; });
  EK_CHECK(found != std::end(kKnownKeys), kCheckpoint, file, ": ", shown(name),
           " is not a key of plain LoRA (PEFT 0.17 to 0.21): what it changes is not known here");
  return *found;
}

void require_plain_lora(const Json& config, const std::string& file) {
  EK_CHECK(config.is_object() && config.contains("peft_type"), kCheckpoint, file, ": not an adapter_config.json");
  for (const auto& [name, value] : config.items()) {
    const auto& known = known_key(name, file);
    EK_CHECK(known.is_plain(value), kCheckpoint, file, ": ", shown(name), " is ", shown(value),
             ", allowed: ", known.allowed);
  }
  for (const auto* needed : {"r", "lora_alpha"})
    EK_CHECK(config.contains(needed), kCheckpoint, file, ": ", needed, " is missing");
}

Header read_header(const fs::path& file) {
  const Json config = load_json(file, kCheckpoint, {.unique_keys = true});
  require_plain_lora(config, file.string());
  const auto rank = config["r"].get<int64_t>();
  const bool square_root = config.value("use_rslora", false);
  const double below = square_root ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank);
  return {rank, config["lora_alpha"].get<double>() / below};
}

/// The sites an adapter file touches. \throws kCheckpoint on a name that is not a LoRA factor of a known site.
std::set<std::string> touched_sites(const TensorMap& tensors, const Sites& sites, const std::string& file) {
  const auto known = parts_by_module(sites);
  std::set<std::string> touched;
  for (const auto& [name, tensor] : tensors) {
    const std::string_view view = name;
    const auto end = view.ends_with(kA) ? kA : view.ends_with(kB) ? kB : std::string_view();
    EK_CHECK(view.starts_with(kPrefix) && !end.empty(), kCheckpoint, file, ": unexpected tensor ", shown(name, 160));
    const auto part = known.find(view.substr(kPrefix.size(), view.size() - kPrefix.size() - end.size()));
    EK_CHECK(part != known.end(), kCheckpoint, file, ": tensor ", shown(name, 160), " adapts a module the model lacks");
    touched.insert(part->second.site);
  }
  EK_CHECK(!touched.empty(), kCheckpoint, file, ": holds no adapter");
  return touched;
}

/// Takes one factor out of `left` into `into`.
void take_factor(TensorMap& left, const std::string& name, const at::Tensor& into, const std::string& file) {
  const auto found = left.find(name);
  EK_CHECK(found != left.end(), kCheckpoint, file, ": tensor ", name, " is missing");
  const auto& tensor = found->second;
  EK_CHECK(tensor.is_floating_point(), kCheckpoint, file, ": tensor ", name, " is not floating-point");
  EK_CHECK(tensor.sizes() == into.sizes(), kCheckpoint, file, ": tensor ", name, " is ", tensor.sizes(), ", expected ",
           into.sizes());
  into.copy_(tensor);
  left.erase(found);
}

LoraFactors read_site(TensorMap& left, const Site& site, const Header& header, const std::string& file) {
  std::vector<int64_t> shape_a{header.rank, site.in}, shape_b{site.out, header.rank};
  if (site.experts > 0) {
    shape_a.insert(shape_a.begin(), site.experts);
    shape_b.insert(shape_b.begin(), site.experts);
  }
  LoraFactors factors{at::empty(shape_a, at::kFloat), at::empty(shape_b, at::kFloat), {}, header.scaling};
  for (size_t i = 0; i < site.modules.size(); ++i) {
    const auto expert = site.experts > 0 ? static_cast<int64_t>(i) : -1;
    take_factor(left, concat(kPrefix, site.modules[i], kA), expert_part(factors.a, expert), file);
    take_factor(left, concat(kPrefix, site.modules[i], kB), expert_part(factors.b, expert), file);
  }
  return factors;
}

void check_values(const AdapterState& adapters, const std::string& file) {
  try {
    check_finite(adapters, file);
  } catch (const Error& error) {
    const std::string text = error.what();
    throw Error(kCheckpoint, text.substr(text.find(' ') + 1));
  }
}

}  // namespace

PeftInfo peft_info(const std::string& base_model, const AdapterState& adapters) {
  if (adapters.empty()) return {.base_model = base_model, .alpha = 1, .rank = 1};
  const auto& any = adapters.begin()->second;
  return {.base_model = base_model, .alpha = any.scaling * static_cast<double>(any.rank()), .rank = any.rank()};
}

void save_peft_adapter(const fs::path& folder, const AdapterState& adapters, const Sites& sites, const PeftInfo& info) {
  peft::require_one_scaling(adapters, info);
  TensorMap tensors;
  std::set<std::string> targets;
  for (const auto& [module, f] : factors_by_module(adapters, sites)) {
    tensors.emplace(concat(kPrefix, module, kA), f.a);
    tensors.emplace(concat(kPrefix, module, kB), f.b);
    targets.emplace(last_name(module));
  }
  auto config = peft::adapter_config(info);
  config["target_modules"] = targets;
  peft::write_folder(folder, tensors, config);
}

AdapterState load_peft_adapter(const fs::path& folder, const Sites& sites) {
  const Header header = read_header(folder / "adapter_config.json");
  const auto file = folder / "adapter_model.safetensors";
  EK_CHECK(path_exists(file) || !path_exists(folder / "adapter_model.bin"), kCheckpoint, folder.string(),
           ": only adapter_model.bin is there; save the adapter as safetensors");
  auto left = load_safetensors(file).tensors;
  AdapterState adapters;
  for (const auto& name : touched_sites(left, sites, file.string()))
    adapters.emplace(name, read_site(left, sites.at(name), header, file.string()));
  EK_CHECK(left.empty(), kCheckpoint, file.string(), ": unexpected tensor ", shown(left.begin()->first, 160));
  check_values(adapters, file.string());
  return adapters;
}

}  // namespace evenkeel
