#include "models/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <cstdio>
#include <limits>
#include <optional>

#include "base/format/fingerprint.h"
#include "base/plain/atomic_folder.h"
#include "base/plain/files.h"
#include "base/plain/text.h"
#include "base/random/random.h"
#include "base/system/machine.h"
#include "models/quantized_base.h"
#include "models/weight_files.h"

namespace evenkeel::models {
namespace {

std::string sizes_text(at::IntArrayRef sizes) { return concat("[", join(sizes), "]"); }

// Checks that no value is infinite or NaN. Such a value has all exponent bits set.
template <typename Bits>
bool all_finite(const void* data, int64_t count, Bits exponent) {
  const auto* bits = static_cast<const Bits*>(data);
  std::atomic<bool> finite{true};
  at::parallel_for(0, count, int64_t{1} << 18, [&](int64_t begin, int64_t end) {
    unsigned bad = 0;
    for (int64_t i = begin; i < end; ++i) bad |= static_cast<unsigned>((bits[i] & exponent) == exponent);
    if (bad) finite = false;
  });
  return finite;
}

bool all_finite(const at::Tensor& t) {
  const void* data = t.const_data_ptr();
  switch (t.scalar_type()) {
    case at::kBFloat16:
      return all_finite<uint16_t>(data, t.numel(), 0x7F80);
    case at::kHalf:
      return all_finite<uint16_t>(data, t.numel(), 0x7C00);
    case at::kFloat:
      return all_finite<uint32_t>(data, t.numel(), 0x7F800000u);
    default:
      return all_finite<uint64_t>(data, t.numel(), 0x7FF0000000000000ull);
  }
}

std::string_view torch_dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kDouble:
      return "float64";
    default:
      return "float32";
  }
}

double largest_number(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return std::numeric_limits<c10::BFloat16>::max();
    case at::kHalf:
      return std::numeric_limits<c10::Half>::max();
    case at::kDouble:
      return std::numeric_limits<double>::max();
    default:
      return std::numeric_limits<float>::max();
  }
}

bool is_stored_float(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf || type == at::kFloat || type == at::kDouble;
}

// Adds the tensors of a shard to `all`. They must be exactly those that the index lists for it.
void merge_shard(const fs::path& folder, const std::string& file, const JsonView& weight_map, TensorMap& all) {
  for (auto& [name, tensor] : load_safetensors(folder / file).tensors) {
    const auto listed = weight_map.find(name);
    EK_CHECK(listed && listed->json() == file, kCheckpoint, folder.string(), ": ", file, " holds ", shown(name),
             ", which ", kWeightIndex, listed ? " places elsewhere" : " does not list");
    all.emplace(name, std::move(tensor));
  }
}

/// Tensors of a folder, and the files that contain them.
struct FolderTensors {
  std::vector<fs::path> files;
  TensorMap tensors;
};

FolderTensors load_shards(const fs::path& folder) {
  const ShardIndex index(folder);
  FolderTensors all;
  for (const auto& file : index.files()) {
    EK_CHECK(path_exists(folder / file), kCheckpoint, folder.string(), ": ", file, " is missing, ", kWeightIndex,
             " lists it");
    merge_shard(folder, file, index.weight_map(), all.tensors);
    all.files.push_back(folder / file);
  }
  for (const auto& entry : index.weight_map().members())
    EK_CHECK(all.tensors.contains(entry.key()), kCheckpoint, folder.string(), ": ", shown(entry.key()),
             " is missing from ", entry.string());
  return all;
}

FolderTensors load_tensors(const fs::path& folder) {
  if (const auto file = folder / kWeightFile; path_exists(file)) return {{file}, load_safetensors(file).tensors};
  EK_CHECK(path_exists(folder / kWeightIndex), kCheckpoint, folder.string(), " holds neither ", kWeightFile, " nor ",
           kWeightIndex);
  return load_shards(folder);
}

class FolderSource final : public TensorSource {
 public:
  FolderSource(const fs::path& folder, BaseDtype dtype, const lora::Sites& sites)
      : FolderSource(folder, dtype, load_tensors(folder)) {
    split_fused(tensors_, sites, folder_);
  }

  at::Tensor take(const std::string& name, at::IntArrayRef sizes) override {
    auto tensor = take_stored(name, sizes);
    return dtype_ ? converted(tensor, *dtype_, name) : tensor;
  }
  at::Tensor take_stored(const std::string& name, at::IntArrayRef sizes) override {
    const auto found = tensors_.find(name);
    EK_CHECK(found != tensors_.end(), kCheckpoint, folder_, ": tensor ", name, " is missing, expected ",
             sizes_text(sizes));
    auto tensor = std::move(found->second);
    tensors_.erase(found);
    EK_CHECK(tensor.sizes() == sizes, kCheckpoint, folder_, ": tensor ", name, " has shape ",
             sizes_text(tensor.sizes()), ", expected ", sizes_text(sizes));
    EK_CHECK(is_stored_float(tensor.scalar_type()), kCheckpoint, folder_, ": tensor ", name, " is ",
             c10::toString(tensor.scalar_type()), ", expected BFloat16, Half, Float or Double");
    EK_CHECK(scan_.known() || all_finite(tensor), kCheckpoint, folder_, ": tensor ", name,
             " holds a value that is not finite");
    return tensor;
  }
  bool has(const std::string& name) const override { return tensors_.contains(name); }
  void leave(std::string_view prefix) override {
    const auto first = tensors_.lower_bound(std::string(prefix));  // names with a prefix are neighbours
    auto end = first;
    for (; end != tensors_.end() && end->first.starts_with(prefix); ++end) ++left_;
    tensors_.erase(first, end);
  }
  void finish() override {
    EK_CHECK(tensors_.empty(), kCheckpoint, folder_, ": tensor ", tensors_.begin()->first, " of shape ",
             sizes_text(tensors_.begin()->second.sizes()), " is unexpected, the configuration has no place for it");
    if (left_ == 0) scan_.remember_finite();
  }

 private:
  FolderSource(const fs::path& folder, BaseDtype dtype, FolderTensors loaded)
      : folder_(folder.string()),
        dtype_(scalar_type(dtype)),
        tensors_(std::move(loaded.tensors)),
        scan_(loaded.files) {}

  /// Converts a tensor. Its values are finite, but a narrower type may not hold them.
  at::Tensor converted(const at::Tensor& stored, at::ScalarType type, const std::string& name) const {
    auto tensor = stored.to(type);
    EK_CHECK(largest_number(stored.scalar_type()) <= largest_number(type) || all_finite(tensor), kCheckpoint, folder_,
             ": tensor ", name, " does not fit ", torch_dtype_name(type), ": its largest value is ",
             stored.abs().max().item<double>(), ", and ", torch_dtype_name(type), " ends at ", largest_number(type));
    return tensor;
  }

  std::string folder_;
  std::optional<at::ScalarType> dtype_;
  TensorMap tensors_;
  FiniteScan scan_;
  size_t left_ = 0;  // number of discarded tensors, which were not checked
};

/// Copies the tensors of another source to the device of engine aten, one at a time. CPU memory holds one tensor.
class PlacedSource final : public TensorSource {
 public:
  PlacedSource(std::unique_ptr<TensorSource> from, c10::Device device) : from_(std::move(from)), device_(device) {}

  at::Tensor take(const std::string& name, at::IntArrayRef sizes) override {
    return from_->take(name, sizes).to(device_);
  }
  at::Tensor take_stored(const std::string& name, at::IntArrayRef sizes) override {
    return from_->take_stored(name, sizes).to(device_);
  }
  bool has(const std::string& name) const override { return from_->has(name); }
  void leave(std::string_view prefix) override { from_->leave(prefix); }
  nn::EngineKind engine() const override { return nn::EngineKind::kAten; }
  void finish() override { from_->finish(); }

 private:
  std::unique_ptr<TensorSource> from_;
  c10::Device device_;
};

class RandomSource final : public TensorSource {
 public:
  RandomSource(double scale, BaseDtype dtype, uint64_t seed, double norms)
      : scale_(scale), norms_(norms), dtype_(scalar_type(dtype).value_or(at::kFloat)), seed_(seed) {}

  at::Tensor take(const std::string& name, at::IntArrayRef sizes) override {
    if (sizes.size() < 2) return at::full(sizes, name.ends_with("bias") ? 0.0 : norms_, dtype_);
    auto tensor = at::empty(sizes, dtype_);
    const auto values = tensor.flatten();
    at::parallel_for(0, (values.numel() + kBlock - 1) / kBlock, 1, [&](int64_t first, int64_t last) {
      RandomStream stream(seed_, "init " + name);
      stream.skip(static_cast<uint64_t>(first * kBlock));
      const auto drawn = at::empty({kBlock}, at::kFloat);
      for (int64_t begin = first * kBlock; begin < std::min(last * kBlock, values.numel()); begin += kBlock) {
        const int64_t count = std::min(kBlock, values.numel() - begin);
        stream.fill_normal({drawn.mutable_data_ptr<float>(), static_cast<size_t>(count)}, scale_);
        values.narrow(0, begin, count).copy_(drawn.narrow(0, 0, count));
      }
    });
    return tensor;
  }
  bool has(const std::string&) const override { return false; }
  void leave(std::string_view) override {}
  void finish() override {}

 private:
  static constexpr int64_t kBlock = int64_t{1} << 16;  // even, because normals are drawn in pairs

  double scale_, norms_;
  at::ScalarType dtype_;
  uint64_t seed_;
};

class ShapeSource final : public TensorSource {
 public:
  ShapeSource(const BaseStorage& storage, std::string origin)
      : options_(at::device(at::kMeta).dtype(scalar_type(storage.dtype).value_or(at::kFloat))),
        format_(storage.format),
        engine_(storage.engine),
        origin_(std::move(origin)) {}

  at::Tensor take(const std::string&, at::IntArrayRef sizes) override {
    EK_CHECK(++taken_ <= kMostTensors, kCheckpoint, origin_, ": a model of more than ", kMostTensors,
             " tensors: num_hidden_layers or num_experts is too large");
    auto tensor = at::empty(sizes, options_);
    bytes_ += static_cast<double>(tensor.nbytes());
    EK_CHECK(bytes_ <= kMostBytes, kCheckpoint, origin_, ": a model of more than 2^60 bytes");
    return tensor;
  }
  nn::FrozenWeight take_weight(const std::string& name, at::IntArrayRef sizes) override {
    auto tensor = take(name, sizes);
    if (format_ == BaseFormat::kStored) return tensor;
    return {at::empty(sizes, options_.dtype(at::kChar)), at::empty({sizes[0]}, options_.dtype(at::kFloat))};
  }
  bool has(const std::string&) const override { return false; }
  void leave(std::string_view) override {}
  nn::EngineKind engine() const override { return engine_; }
  void finish() override {}

 private:
  static constexpr int64_t kMostTensors = int64_t{1} << 20;  // 300 times the number in OLMoE-1B-7B
  static constexpr double kMostBytes = 0x1p60;               // sums of sizes fit into 64 bits

  at::TensorOptions options_;
  BaseFormat format_;
  nn::EngineKind engine_;
  std::string origin_;
  int64_t taken_ = 0;
  double bytes_ = 0;
};

// Sets the dtype in config.json. transformers 5 uses the key `dtype` and prefers it to `torch_dtype`, so every existing
// key of the two is updated.
std::string with_dtype(const std::string& config_json, at::ScalarType type) {
  auto config = OrderedJson::parse(config_json);  // its limits were checked when it was read
  if (!config.contains("dtype")) config["torch_dtype"] = torch_dtype_name(type);
  for (const auto* key : {"dtype", "torch_dtype"})
    if (config.contains(key)) config[key] = torch_dtype_name(type);
  return config.dump(2) + "\n";
}

// Splits tensors into shards: consecutive tensors in name order that fit. A tensor larger than a shard gets its own.
std::vector<TensorMap> split_shards(const TensorMap& tensors, int64_t shard_bytes) {
  std::vector<TensorMap> shards(1);
  int64_t used = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    if (used > 0 && used + bytes > shard_bytes) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().emplace(name, tensor);
    used += bytes;
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name.data();
}

const Metadata kHubMetadata{{"format", "pt"}};

void write_shards(const fs::path& folder, const std::vector<TensorMap>& shards, const TensorMaker& make) {
  if (shards.size() == 1) {
    stream_safetensors(folder / kWeightFile, shards[0], make, kHubMetadata);
    return;
  }
  OrderedJson weight_map = OrderedJson::object();
  size_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    stream_safetensors(folder / shard_name(i, shards.size()), shards[i], make, kHubMetadata);
    for (const auto& [name, tensor] : shards[i]) {
      weight_map[name] = shard_name(i, shards.size());
      total += tensor.nbytes();
    }
  }
  const OrderedJson index{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  write_file_atomic(folder / kWeightIndex, index.dump(2) + "\n");
}

}  // namespace

ModelConfig ModelConfig::load(const fs::path& file) {
  EK_CHECK(path_exists(file), kCheckpoint, file.string(), " is missing");
  ModelConfig config;
  config.origin_ = file.string();
  config.text_ = read_file(file, JsonLimits().bytes);
  config.json_ = parse_json(config.text_, config.origin_, kCheckpoint, {.unique_keys = true});
  config.view().object();
  return config;
}

bool ModelConfig::has(std::string_view key) const { return view().has(key); }

int64_t ModelConfig::integer(std::string_view key, int64_t most) const { return view().at(key).integer(1, most); }

std::optional<JsonView> ModelConfig::given(std::string_view key) const {
  if (!json_.contains(key)) return std::nullopt;
  const auto value = view().at(key);
  value.require(!value.json().is_null(), " is null, expected a value, or no such key");
  return value;
}

int64_t ModelConfig::integer_or(std::string_view key, int64_t otherwise) const {
  const auto value = given(key);
  return value ? value->integer() : otherwise;
}
double ModelConfig::number_or(std::string_view key, double otherwise) const {
  const auto value = given(key);
  return value ? value->number() : otherwise;
}
bool ModelConfig::flag_or(std::string_view key, bool otherwise) const {
  const auto value = given(key);
  return value ? value->flag() : otherwise;
}
std::string ModelConfig::string_or(std::string_view key, std::string_view otherwise) const {
  const auto value = given(key);
  return value ? value->string() : std::string(otherwise);
}

int64_t ModelConfig::token_id(std::string_view key) const {
  const auto ids = token_ids(key);
  return ids.empty() ? -1 : ids.front();
}

std::vector<int64_t> ModelConfig::token_ids(std::string_view key) const {
  const auto value = view().find(key);
  if (!value) return {};
  if (value->json().is_array()) return value->integers();
  return {value->integer()};
}

void ModelConfig::require(std::string_view key, const Json& supported, std::string_view advice) const {
  const auto value = view().find(key);
  if (value)
    value->require(value->json() == supported, " is ", shown(value->json()), ", supported: ", shown(supported), advice);
}

std::optional<at::ScalarType> scalar_type(BaseDtype dtype) {
  switch (dtype) {
    case BaseDtype::kCheckpoint:
      return std::nullopt;
    case BaseDtype::kFloat32:
      return at::kFloat;
    case BaseDtype::kBFloat16:
      return at::kBFloat16;
    case BaseDtype::kFloat64:
      return at::kDouble;
  }
  fail(kInternal, "unknown base dtype");
}

std::unique_ptr<TensorSource> folder_source(const fs::path& folder, const BaseStorage& storage,
                                            const lora::Sites& sites) {
  EK_CHECK(storage.engine == nn::EngineKind::kAten || storage.device.is_cpu(), kConfig, "engine kernels on ",
           storage.device.str(), ", allowed: cpu");
  EK_CHECK(storage.engine == nn::EngineKind::kKernels || storage.format == BaseFormat::kStored, kConfig,
           "engine aten with a base in int8, supported: stored");
  auto source = std::make_unique<FolderSource>(folder, storage.dtype, sites);
  if (storage.engine == nn::EngineKind::kAten) return placed_source(std::move(source), storage.device);
  if (storage.format == BaseFormat::kStored) return source;
  const OpenStored open = [folder](const lora::Sites& of_model) {
    return std::make_unique<FolderSource>(folder, BaseStorage().dtype, of_model);
  };
  return quantized_source(std::move(source), folder, open, storage.cache);
}

void check_product(std::string_view origin, const std::string& name, const at::Tensor& weight,
                   at::ScalarType activations, nn::EngineKind engine) {
  const bool fits = weight.scalar_type() != at::kDouble || activations == at::kDouble;
  EK_CHECK(fits || engine == nn::EngineKind::kAten, kCheckpoint, origin, ": tensor ", name,
           " is float64 beside an embedding of a narrower type, supported by engine kernels: float32, bfloat16, "
           "float16; for a base, model.dtype = \"float32\" (--dtype) converts it");
}

std::unique_ptr<TensorSource> placed_source(std::unique_ptr<TensorSource> from, c10::Device device) {
  return std::make_unique<PlacedSource>(std::move(from), device);
}

std::unique_ptr<TensorSource> random_source(double scale, BaseDtype dtype, uint64_t seed, double norms) {
  return std::make_unique<RandomSource>(scale, dtype, seed, norms);
}

std::unique_ptr<TensorSource> shape_source(const BaseStorage& storage, std::string origin) {
  return std::make_unique<ShapeSource>(storage, std::move(origin));
}

at::Tensor stored_as(at::ScalarType type, const at::Tensor& values, const std::string& name) {
  auto stored = values.to(type).contiguous();
  if (all_finite(stored)) return stored;
  EK_CHECK(all_finite(values.contiguous()), kNumeric, "tensor ", name, " holds a value that is not finite in ",
           torch_dtype_name(values.scalar_type()));
  std::vector<std::string_view> others;
  for (const auto other : {at::kBFloat16, at::kFloat, at::kDouble})
    if (all_finite(values.to(other).contiguous())) others.push_back(torch_dtype_name(other));
  fail(kNumeric, "tensor ", name, " does not fit ", torch_dtype_name(type), ": its largest value is ",
       values.abs().max().item<double>(), ", and ", torch_dtype_name(type), " ends at ", largest_number(type),
       "; allowed: --dtype ", join(others, " or "));
}

void write_checkpoint(const fs::path& folder, const std::string& config_json, const TensorMap& shapes,
                      const TensorMaker& make, int64_t shard_bytes, const FusedTensors& fused) {
  EK_CHECK(!shapes.empty(), kInternal, "a checkpoint without tensors");
  AtomicFolder out(folder);
  const auto shards = split_shards(fused_shapes(shapes, fused), shard_bytes);
  int64_t bytes = 0;
  for (const auto& shard : shards) bytes += safetensors_size(shard, kHubMetadata);
  machine::require_disk(folder, bytes, "the model");
  const TensorMaker finite = [&make](const std::string& name) {
    auto tensor = make(name);
    EK_CHECK(all_finite(tensor.contiguous()), kNumeric, "tensor ", name, " holds a value that is not finite in ",
             torch_dtype_name(tensor.scalar_type()));
    return tensor;
  };
  write_shards(out.path(), shards, fused_maker(fused, finite));
  write_file_atomic(out.path() / "config.json", with_dtype(config_json, shapes.begin()->second.scalar_type()));
  out.commit();
}

void write_checkpoint(const fs::path& folder, const std::string& config_json, const TensorMap& tensors, BaseDtype dtype,
                      const std::set<std::string>& float32, int64_t shard_bytes, const FusedTensors& fused) {
  TensorMap shapes;
  for (const auto& [name, tensor] : tensors) {
    const auto own = tensor.scalar_type();
    const auto type = float32.contains(name) ? own : scalar_type(dtype).value_or(own);
    shapes[name] = at::empty(tensor.sizes(), at::device(at::kMeta).dtype(type));
  }
  const auto make = [&](const std::string& name) {
    return stored_as(shapes.at(name).scalar_type(), tensors.at(name).detach(), name);
  };
  write_checkpoint(folder, config_json, shapes, make, shard_bytes, fused);
}

}  // namespace evenkeel::models
