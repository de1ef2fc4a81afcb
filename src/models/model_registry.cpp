// To add a family, write its file, then declare it here and add it to the table. Other programs call add_family().
#include <algorithm>

#include "base/plain/data_path.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/hub_cache.h"
#include "base/plain/text.h"
#include "models/checkpoint.h"
#include "models/weight_files.h"

namespace evenkeel::models {

ModelEntry olmoe(), flex_olmo(), qwen2_moe(), qwen3_moe(), mixtral(), granitemoe();                            // sparse
ModelEntry deepseek_v2(), deepseek_v3(), glm4_moe();                                                           // sparse
ModelEntry olmo(), olmo2(), llama(), mistral(), qwen2(), qwen3(), granite(), gemma2(), gemma3_text(), phi3();  // dense

namespace {

constexpr std::string_view kBuiltinPrefix = "builtin:", kModelPath = "the model's path";
constexpr const char* kAdapterConfig = "adapter_config.json";

std::vector<ModelEntry>& table() {
  static std::vector<ModelEntry> rows{olmo(),    olmoe(),       flex_olmo(),   qwen2_moe(), qwen3_moe(),
                                      mixtral(), granitemoe(),  olmo2(),       llama(),     mistral(),
                                      qwen2(),   qwen3(),       granite(),     gemma2(),    gemma3_text(),
                                      phi3(),    deepseek_v2(), deepseek_v3(), glm4_moe()};
  return rows;
}

/// Returns whether two families have a name in common, as "qwen3_next" and "qwen3_moe": the letters before the first
/// digit or underscore.
bool are_close(std::string_view one, std::string_view other) {
  constexpr std::string_view kEnds = "0123456789_-";
  const auto name = one.substr(0, one.find_first_of(kEnds));
  return name.size() > 1 && name == other.substr(0, other.find_first_of(kEnds));
}

/// A family that is refused for a reason.
struct Refused {
  std::string_view family, why;
};
constexpr std::array kRefused = {
    Refused{"gpt_oss", "experts and routers with biases, and attention with sinks, are not computed here"}};

/// Refuses a model for texts and other things whose text part is of a known family.
void refuse_whole_of_known_part(const ModelConfig& config, std::string_view type) {
  const auto part = config.view().find("text_config");
  if (!part || !part->json().is_object() || !part->has("model_type")) return;
  const auto& text = part->at("model_type").string();
  for (const auto& entry : table())
    EK_CHECK(entry.family != text, kCheckpoint, config.origin(), ": model_type is \"", type,
             "\", which is not supported; its text part is a ", text,
             ": save that part alone (docs/troubleshooting.md says how)");
}

[[noreturn]] void refuse_family(const ModelConfig& config, std::string_view type) {
  refuse_whole_of_known_part(config, type);
  for (const auto& refused : kRefused)
    EK_CHECK(refused.family != type, kCheckpoint, config.origin(), ": model_type is \"", type,
             "\", which is not supported: ", refused.why, " (docs/decisions/0035-families-of-leaves.md)");
  std::vector<std::string_view> close, known;
  for (const auto& entry : table()) (are_close(type, entry.family) ? close : known).push_back(entry.family);
  fail(kCheckpoint, config.origin(), ": model_type is \"", type, "\", which is not supported; ",
       close.empty() ? "" : concat("families of that name: ", join(close), "; "), close.empty() ? "" : "other ",
       "known families: ", join(known), ". docs/tutorial-new-family.md adds a family");
}

const ModelEntry& family_of(const ModelConfig& config) {
  const auto type = config.string_or("model_type", "");
  for (const auto& entry : table())
    if (entry.family == type) return entry;
  refuse_family(config, type);
}

std::unique_ptr<CausalLm> shape_of(const ModelConfig& config, const BaseStorage& storage = {}) {
  return family_of(config).make(config, *shape_source(storage, config.origin()));
}

/// Says of a folder that holds an adapter alone how it is used.
void check_is_whole_model(const fs::path& folder) {
  EK_CHECK(path_exists(folder / "config.json") || !is_file(folder / kAdapterConfig), kCheckpoint, folder.string(),
           " holds an adapter and no model: give its base as the model, and this folder by --adapter or lora.init");
}

}  // namespace

std::optional<fs::path> adapter_beside(const fs::path& folder) {
  const bool both = is_file(folder / kAdapterConfig) && is_file(folder / "config.json");
  return both ? std::optional(folder) : std::nullopt;
}

void check_no_adapter_beside(const fs::path& folder) {
  EK_CHECK(!adapter_beside(folder), kCheckpoint, (folder / kAdapterConfig).string(),
           ": an adapter lies beside the weights, and transformers applies it when it loads the folder. Only score, ",
           "generate and evaluate with --model do so here; for all else move adapter_config.json and ",
           "adapter_model.safetensors to a folder of their own (lora.init and --adapter take it)");
}

std::span<const ModelEntry> model_families() { return table(); }

void add_family(const ModelEntry& entry) {
  const auto taken = [&](const ModelEntry& known) { return known.family == entry.family; };
  EK_CHECK(entry.make, kInternal, "family ", entry.family, " has no make: use decoder_entry()");
  EK_CHECK(std::none_of(table().begin(), table().end(), taken), kConfig, "family ", entry.family,
           " is in the table already");
  table().push_back(entry);
}

std::unique_ptr<CausalLm> load_model(const fs::path& folder, const BaseStorage& storage, BesideAdapter beside) {
  EK_CHECK(is_folder(folder), kCheckpoint, folder.string(), " is not a folder");
  check_is_whole_model(folder);
  if (beside == BesideAdapter::kRefused) check_no_adapter_beside(folder);
  const auto config = ModelConfig::load(folder / "config.json");
  const auto& family = family_of(config);
  const auto source = folder_source(folder, storage, shape_of(config)->all_sites());
  auto model = family.make(config, *source);
  source->finish();
  return model;
}

std::unique_ptr<CausalLm> load_shape(const fs::path& path, const BaseStorage& storage, BesideAdapter beside) {
  const bool is_config = is_file(path);
  EK_CHECK(is_config || is_folder(path), kCheckpoint, path.string(), " is not a folder");
  if (!is_config) check_is_whole_model(path);
  if (!is_config && beside == BesideAdapter::kRefused) check_no_adapter_beside(path);
  return shape_of(ModelConfig::load(is_config ? path : path / "config.json"), storage);
}

int64_t weight_file_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& file : weight_files(folder)) bytes += static_cast<int64_t>(evenkeel::file_size(file));
  return bytes;
}

namespace {

std::unique_ptr<TensorSource> draws_of(const ModelConfig& config, BaseDtype dtype, uint64_t seed) {
  return random_source(config.number_or("initializer_range", 0.02), dtype, seed, family_of(config).norms);
}

}  // namespace

std::unique_ptr<CausalLm> init_model(const fs::path& config_json, const BaseStorage& storage, uint64_t seed) {
  const auto config = ModelConfig::load(config_json);
  auto draws = draws_of(config, storage.dtype, seed);
  if (storage.engine == nn::EngineKind::kAten) draws = placed_source(std::move(draws), storage.device);
  return family_of(config).make(config, *draws);
}

void write_random_model(const fs::path& config_json, const fs::path& folder, BaseDtype dtype, uint64_t seed,
                        int64_t shard_bytes, ExpertLayout layout) {
  const auto config = ModelConfig::load(config_json);
  const auto model = shape_of(config, dtype);
  const auto shapes = model->parameters();
  const auto draws = draws_of(config, dtype, seed);
  const auto make = [&](const std::string& name) {
    return draws->take(name, shapes.at(name).sizes()).to(shapes.at(name).scalar_type());
  };
  write_checkpoint(folder, config.text(), shapes, make, shard_bytes, fused_tensors(model->all_sites(), layout));
}

void save_model(const CausalLm& model, const fs::path& folder, BaseDtype dtype, int64_t shard_bytes) {
  write_checkpoint(folder, model.config_json(), model.parameters(), dtype, model.spec().float32_tensors, shard_bytes,
                   fused_tensors(model.all_sites(), ExpertLayout::kOriginal));
}

fs::path resolve_model_path(const std::string& path) {
  check_path_text(path, kModelPath);
  if (path.starts_with(kHubAddress)) return cached_file(path, kModelPath);
  if (path.starts_with(kBuiltinPrefix)) return shipped_folder() / "assets" / path.substr(kBuiltinPrefix.size());
  const auto folder = expand_home(path, kModelPath);
  return path_exists(folder) ? fs::path(folder) : cached_snapshot(HubKind::kModel, path).value_or(folder);
}

fs::path find_model_folder(const std::string& path) {
  auto folder = resolve_model_path(path);
  if (!path_exists(folder)) found_snapshot(HubKind::kModel, path, kModelPath);  // says how to fetch it
  return folder;
}

std::string settled_model_path(const std::string& path) {
  if (path.starts_with(kBuiltinPrefix)) return path;
  const auto folder = find_model_folder(path);
  const bool is_local = !path.starts_with(kHubAddress) && path_exists(expand_home(path, kModelPath));
  return is_local ? absolute_path(folder) : pinned_address(path, kModelPath).value_or(absolute_path(folder));
}

}  // namespace evenkeel::models
