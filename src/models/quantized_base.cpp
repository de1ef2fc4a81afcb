#include "models/quantized_base.h"

#include <ATen/ATen.h>

#include "base/format/fingerprint.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/mapped_files.h"
#include "base/plain/sealed.h"
#include "base/system/machine.h"
#include "models/causal_lm.h"
#include "models/weight_files.h"

namespace evenkeel::models {
namespace {

// Version of the rounding and of the file format. Another version makes another file.
constexpr std::string_view kRecipe = "int8 rows 1";
constexpr std::string_view kScales = ".scales";

/// Quantises a weight. \throws kCheckpoint naming it when a value is not finite in float32, in which rows are rounded
nn::FrozenWeight int8_rows(const at::Tensor& w_OI, const std::string& name) {
  EK_CHECK(w_OI.scalar_type() != at::kDouble || w_OI.to(at::kFloat).isfinite().all().item<bool>(), kCheckpoint,
           "tensor ", name, " does not fit int8: its largest value is ", w_OI.abs().max().item<double>(),
           ", allowed: what float32 holds");
  return nn::quantized(w_OI);
}

/// Quantises each weight when it is taken.
class QuantizingSource : public TensorSource {
 public:
  explicit QuantizingSource(std::unique_ptr<TensorSource> stored) : stored_(std::move(stored)) {}

  at::Tensor take(const std::string& name, at::IntArrayRef sizes) override { return stored_->take(name, sizes); }
  at::Tensor take_stored(const std::string& name, at::IntArrayRef sizes) override {
    return stored_->take_stored(name, sizes);
  }
  nn::FrozenWeight take_weight(const std::string& name, at::IntArrayRef sizes) override {
    return int8_rows(stored_->take(name, sizes), name);
  }
  bool has(const std::string& name) const override { return stored_->has(name); }
  void leave(std::string_view prefix) override { stored_->leave(prefix); }
  void finish() override { stored_->finish(); }

 protected:
  std::unique_ptr<TensorSource> stored_;
};

/// Takes weights that are already quantised. The pages of their checkpoint are not read.
class QuantizedSource final : public QuantizingSource {
 public:
  QuantizedSource(std::unique_ptr<TensorSource> stored, const fs::path& file)
      : QuantizingSource(std::move(stored)), file_(file.string()), tensors_(load_safetensors(file).tensors) {}

  nn::FrozenWeight take_weight(const std::string& name, at::IntArrayRef sizes) override {
    const auto values = tensors_.find(name), scales = tensors_.find(concat(name, kScales));
    EK_CHECK(values != tensors_.end() && scales != tensors_.end() && values->second.sizes() == sizes &&
                 scales->second.sizes() == sizes.slice(0, 1),
             kCheckpoint, file_, " holds no ", name, " of the sizes that the model has: remove the file");
    stored_->leave(name);
    return {values->second, scales->second};
  }

 private:
  std::string file_;
  TensorMap tensors_;
};

/// Returns the SHA-256 over the names and fingerprints of the folder's files of weights.
std::string source_hash(const fs::path& folder) {
  std::string text(kRecipe);
  for (const auto& file : weight_files(folder))
    text += concat('\n', file.filename().string(), ' ', fingerprint_of(file).digest);
  return sha256(text);
}

std::unique_ptr<CausalLm> int8_shape(const fs::path& folder) {
  BaseStorage storage;
  storage.format = BaseFormat::kInt8;
  return load_shape(folder, storage);
}

/// Returns the shapes of the quantised tensors of a model: int8 values and their scales.
TensorMap quantized_shapes(const CausalLm& model) {
  auto shapes = model.parameters();
  std::erase_if(shapes, [&](const auto& entry) {
    return entry.second.scalar_type() != at::kChar && !entry.first.ends_with(kScales);
  });
  return shapes;
}

/// Writes the quantised file. Scales come first in it, so every weight is read twice. Memory holds the scales and one
/// weight at a time, also of the mapped checkpoint, because a machine that needs int8 may not hold all of its pages.
void write_quantized(const fs::path& folder, const OpenStored& open, const fs::path& file) {
  const auto model = int8_shape(folder);
  const auto shapes = quantized_shapes(*model);
  machine::require_disk(file.parent_path(), safetensors_size(shapes), "the int8 base");
  const auto stored = open(model->all_sites());
  TensorMap weights;
  for (const auto& [name, shape] : shapes)
    if (!name.ends_with(kScales)) {
      weights[name] = stored->take(name, shape.sizes());  // take() checks that the values are finite
      release_mapped_pages();
    }
  stream_safetensors(file, shapes, [&](const std::string& name) {
    const bool is_scale = name.ends_with(kScales);
    const auto own = is_scale ? name.substr(0, name.size() - kScales.size()) : name;
    const auto weight = int8_rows(weights.at(own), own);
    release_mapped_pages();
    return is_scale ? weight.scales_O : weight.values_OI;
  });
}

fs::path seal_of(const fs::path& file) { return fs::path(file).replace_extension(".json"); }

/// Returns whether `file` is complete and unchanged. Damage is logged.
bool is_whole(const fs::path& file) {
  if (!path_exists(file) || !path_exists(seal_of(file))) return false;
  try {
    const Json seal = read_sealed(seal_of(file));
    const JsonView view(seal, seal_of(file).string(), kCheckpoint);
    if (view.at("bytes").integer(0) == static_cast<int64_t>(evenkeel::file_size(file)) &&
        view.at("fingerprint").string() == fingerprint_of(file).digest)
      return true;
    log::warning("[model] ", file.string(), " is not the file that was written: it is made again");
  } catch (const Error& error) {
    log::warning("[model] ", error.what(), ": the int8 base is made again");
  }
  return false;
}

fs::path cached_file(const fs::path& folder, const OpenStored& open, const fs::path& cache) {
  make_folders(cache);
  const auto file = cache / concat(source_hash(folder).substr(0, 16), "-int8.safetensors");
  if (is_whole(file)) return file;
  log::info("[model] ", folder.string(), " is quantised to int8: ", file.string());
  write_quantized(folder, open, file);
  write_sealed(
      seal_of(file),
      {{"recipe", kRecipe}, {"bytes", evenkeel::file_size(file)}, {"fingerprint", fingerprint_of(file).digest}});
  return file;
}

}  // namespace

std::unique_ptr<TensorSource> quantized_source(std::unique_ptr<TensorSource> stored, const fs::path& folder,
                                               const OpenStored& open, const fs::path& cache) {
  if (cache.empty()) return std::make_unique<QuantizingSource>(std::move(stored));
  return std::make_unique<QuantizedSource>(std::move(stored), cached_file(folder, open, cache));
}

}  // namespace evenkeel::models
