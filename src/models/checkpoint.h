/// \file  Reads and writes Hugging Face checkpoint folders: config.json and one or several safetensors files.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/format/safetensors.h"
#include "base/plain/json.h"
#include "models/causal_lm.h"
#include "models/expert_layout.h"
#include "models/tensor_source.h"

namespace evenkeel::models {

/// Reads config.json. Every error is kCheckpoint and names the file and the key.
class ModelConfig {
 public:
  /// Reads config.json. \throws kCheckpoint when it is missing or not a JSON object; kIo when it cannot be read
  static ModelConfig load(const std::filesystem::path& file);

  /// Returns the text of the file, unchanged.
  const std::string& text() const { return text_; }
  /// Returns the path of the file, for errors.
  const std::string& origin() const { return origin_; }
  /// Returns the whole document.
  JsonView view() const { return JsonView(json_, origin_, kCheckpoint); }
  bool has(std::string_view key) const;  ///< true: the key is present and not null

  /// Returns the value of a required key, 1 to `most`. The product of two sizes in bytes then fits into 64 bits.
  int64_t integer(std::string_view key, int64_t most = int64_t{1} << 28) const;
  /// Returns the value of `key`, or `otherwise` if config.json does not have the key.
  /// \throws kCheckpoint when the value is null or of another type
  int64_t integer_or(std::string_view key, int64_t otherwise) const;
  double number_or(std::string_view key, double otherwise) const;
  bool flag_or(std::string_view key, bool otherwise) const;
  std::string string_or(std::string_view key, std::string_view otherwise) const;
  /// Returns the token id under `key`, the first one of a list, or -1 if the key is absent or null.
  int64_t token_id(std::string_view key) const;
  /// Returns all token ids under `key`, which holds one id or a list.
  std::vector<int64_t> token_ids(std::string_view key) const;
  /// Checks that `key` is absent, null or equal to `supported`.
  /// \param advice  end of the message: why, and what to do \throws kCheckpoint otherwise
  void require(std::string_view key, const Json& supported, std::string_view advice = "") const;

 private:
  std::optional<JsonView> given(std::string_view key) const;

  std::string text_, origin_;
  Json json_;
};

/// Returns the type that `dtype` selects; nullopt for BaseDtype::kCheckpoint, where each tensor keeps its own type.
std::optional<at::ScalarType> scalar_type(BaseDtype dtype);

/// Opens the tensors of a folder: memory-mapped for BaseDtype::kCheckpoint, else converted. Each tensor is checked for
/// values that are not finite when it is taken, unless an earlier run has checked the same unchanged file
/// (base/format/fingerprint.h).
/// \param sites  sites of the model, which locate its matrices in fused tensors (models/expert_layout.h)
/// \throws kConfig when engine, device and format of `storage` do not fit together
std::unique_ptr<TensorSource> folder_source(const std::filesystem::path& folder, const BaseStorage& storage,
                                            const lora::Sites& sites = {});

/// Checks that an engine can multiply hidden states of type `activations` by a weight.
/// \param origin  name of the config file, for errors
/// \throws kCheckpoint naming a tensor that is float64, when the hidden states are not and the engine is kKernels
void check_product(std::string_view origin, const std::string& name, const at::Tensor& weight,
                   at::ScalarType activations, nn::EngineKind engine);

/// Returns a source for engine aten. It takes each tensor from `from` and copies it to `device`.
std::unique_ptr<TensorSource> placed_source(std::unique_ptr<TensorSource> from, c10::Device device);

/// Returns a source of random tensors: matrices of normal numbers, vectors of `norms`, biases of zeros. The draw of a
/// tensor depends on `seed` and its name only.
/// \param scale  standard deviation \param dtype  kCheckpoint means float32
std::unique_ptr<TensorSource> random_source(double scale, BaseDtype dtype, uint64_t seed, double norms = 1);

/// Returns a source of tensors without storage (device meta), for load_shape().
/// \param origin  name of the config file, for errors
/// \throws kCheckpoint when the model has more than 2^20 tensors or 2^60 bytes
std::unique_ptr<TensorSource> shape_source(const BaseStorage& storage, std::string origin);

/// Converts a tensor that is written to a checkpoint.
/// \throws kNumeric when a value is not finite in `type`. The message names the tensor, and the types of BaseDtype that
/// hold all of its values.
at::Tensor stored_as(at::ScalarType type, const at::Tensor& values, const std::string& name);

/// Writes config.json and the tensors in Hugging Face format: one file, or shards with an index above `shard_bytes`. It
/// makes one tensor at a time, so it needs memory for the largest only. The folder is renamed into place when it is
/// complete.
/// \param shapes  names, sizes and dtypes of the model's matrices; tensors without storage suffice
/// \param make    returns the tensor of a name
/// \param fused   fused tensors to write instead of the matrices that they contain
/// \throws kIo when `folder` exists and is not empty, or when the disk is too small; both before any tensor is made;
/// kNumeric naming a tensor with a value that is not finite
void write_checkpoint(const std::filesystem::path& folder, const std::string& config_json, const TensorMap& shapes,
                      const TensorMaker& make, int64_t shard_bytes, const FusedTensors& fused = {});
/// Writes tensors that are in memory, each converted to `dtype` when it is written.
/// \param float32  names of tensors that keep their own type (ModelSpec::float32_tensors)
/// \throws kNumeric as stored_as()
void write_checkpoint(const std::filesystem::path& folder, const std::string& config_json, const TensorMap& tensors,
                      BaseDtype dtype, const std::set<std::string>& float32, int64_t shard_bytes,
                      const FusedTensors& fused = {});

}  // namespace evenkeel::models
