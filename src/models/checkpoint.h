/// \file  Hugging Face checkpoint folders: config.json and one or several safetensors files. What the families share;
/// what a tensor means is the family's own affair.
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

namespace evenkeel {

/// config.json, read through a JsonView: every error names the file and the key.
class ModelConfig {
 public:
  static ModelConfig load(const std::filesystem::path& file);

  const std::string& text() const { return text_; }
  const std::string& origin() const { return origin_; }
  /// The whole document.
  JsonView view() const { return JsonView(json_, origin_, kCheckpoint); }
  bool has(std::string_view key) const;  ///< present and not null

  int64_t integer(std::string_view key) const;  ///< required, 1 to 2^28
  /// The key's value, or `otherwise` where config.json does not name the key. \throws kCheckpoint on null, which no
  /// such key may hold.
  int64_t integer_or(std::string_view key, int64_t otherwise) const;
  double number_or(std::string_view key, double otherwise) const;
  bool flag_or(std::string_view key, bool otherwise) const;
  std::string string_or(std::string_view key, std::string_view otherwise) const;
  /// The token id under `key`, the first of a list, or -1.
  int64_t token_id(std::string_view key) const;
  /// All ids under `key`: those of a list, or the one.
  std::vector<int64_t> token_ids(std::string_view key) const;
  /// \throws kCheckpoint when `key` is present and holds something else than `supported` (null counts as absent).
  void require(std::string_view key, const Json& supported) const;

 private:
  std::optional<JsonView> given(std::string_view key) const;

  std::string text_, origin_;
  Json json_;
};

/// The type that `dtype` asks for; nothing for kCheckpoint, where each tensor keeps its own.
std::optional<at::ScalarType> scalar_type(BaseDtype dtype);

/// Tensors of a folder, memory-mapped (kCheckpoint) or converted. Checks each taken tensor for values that are not
/// finite, unless its file was found without any before and is as it was (base/format/fingerprint.h).
/// \param sites  of the model, which say what is a part of a fused tensor (models/expert_layout.h)
std::unique_ptr<TensorSource> folder_source(const std::filesystem::path& folder, const BaseStorage& storage,
                                            const Sites& sites = {});

/// What `from` gives, on `device`, for engine aten.
std::unique_ptr<TensorSource> placed_source(std::unique_ptr<TensorSource> from, c10::Device device);

/// Vectors are ones, biases zeros, matrices N(0, scale); each tensor has its own draw, by (seed, name), on all threads.
std::unique_ptr<TensorSource> random_source(double scale, BaseDtype dtype, uint64_t seed);

/// Tensors without storage (device meta): what a model consists of, from its own construction.
/// \throws kCheckpoint naming `origin` when there would be more tensors than any model of these families has.
std::unique_ptr<TensorSource> shape_source(const BaseStorage& storage, std::string origin);

/// Writes tensors, each made when its turn comes, and config.json in the hub's layout; one file, or shards with an
/// index above `shard_bytes`. The folder appears whole or not at all. Memory: the largest tensor.
/// \param shapes  the model's matrices: names, sizes and dtypes; tensors without storage will do
/// \param fused  what the layout to be written holds instead of some of them
/// \throws kIo when `folder` is not new or empty, or the disk has no room for it: before anything is made.
void write_checkpoint(const std::filesystem::path& folder, const std::string& config_json, const TensorMap& shapes,
                      const TensorMaker& make, int64_t shard_bytes, const FusedTensors& fused = {});
/// The same of tensors at hand, converted one by one.
void write_checkpoint(const std::filesystem::path& folder, const std::string& config_json, const TensorMap& tensors,
                      BaseDtype dtype, int64_t shard_bytes, const FusedTensors& fused = {});

}  // namespace evenkeel
