/// \file  Declares the interface of a causal language model, the functions that load and save one, and the registry of
/// model families.
/// A model is a frozen base. Adapters, router options and caches are arguments of each call, so one base serves every
/// simulated client.
/// Dimension names: R positions of a batch ("rows" here; fewer than its tokens where sequences share a prefix),
/// N selected positions, B sequences, D hidden, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "data/example.h"
#include "lora/adapter.h"
#include "lora/peft_family.h"
#include "nn/attention/kv_cache.h"
#include "nn/compute/compute.h"
#include "nn/dense/loss.h"
#include "nn/engine/pass_graphs.h"
#include "nn/moe/routing.h"

namespace evenkeel::models {

/// Describes how a family computes the gate weights of the selected experts. They are entries of the softmax over all
/// experts or sigmoids, either unchanged or renormalised to a sum of 1. Some families also multiply them by a factor.
struct GateRule {
  nn::ScoreFunction score = nn::ScoreFunction::kSoftmax;
  bool renormalise = false;  ///< true: the weights are renormalised to a sum of 1
  std::string key{};         ///< key of config.json that sets `renormalise`; empty: the family fixes it
  /// The value of `renormalise` that llama.cpp, vLLM and SGLang use for the family, whatever config.json says; nullopt:
  /// they follow config.json.
  std::optional<bool> servers{};
  bool only_llama_cpp = false;  ///< true: `servers` is llama.cpp's value, vLLM and SGLang follow config.json
};

/// Describes how llama.cpp stores a family in GGUF files.
struct GgufRule {
  std::string architecture{};  ///< value of general.architecture; empty: llama.cpp does not support the family
  /// True: query and key rows are permuted, because llama.cpp rotates adjacent pairs.
  bool interleaves_heads = false;
};

/// Counts the work and the memory that a model needs per token. The building blocks of the model add their parts when
/// they are constructed.
struct TokenWork {
  /// Multiply-adds of a forward pass. `scores` counts one attended position, `experts` one selected expert.
  double attention = 0, scores = 0, router = 0, experts = 0, mlp = 0, head = 0;
  /// float32 values that the forward pass saves for the backward pass. `kept_by_expert` counts one selected expert,
  /// `kept` all the rest.
  double kept = 0, kept_by_expert = 0;
  double capped_heads = 0;  ///< heads of all layers whose scores have a soft cap
  double widest = 0;        ///< the largest inner width of a feed-forward block
};

/// Describes a model: its sizes, special tokens and expert layers.
struct ModelSpec {
  std::string family;  ///< `model_type` of config.json, as in "olmoe"
  int64_t vocab_size = 0, hidden_size = 0;
  int64_t num_layers = 0, num_kv_heads = 0, head_width = 0;
  int64_t num_experts = 0;     ///< experts of each mixture layer; 0: dense model
  int64_t top_k = 0;           ///< num_experts_per_tok of the checkpoint
  int64_t max_positions = 0;   ///< longest sequence in tokens
  double logits_cap = 0;       ///< soft cap of the logits (nn/dense/loss.h); 0: none
  std::vector<int64_t> eos{};  ///< token ids that end a generated text (models/end_tokens.h)
  /// Token ids of the end of a training text and of padding; -1: the checkpoint names none.
  int64_t end_of_text = -1, pad = -1;
  std::vector<std::string> moe_layers{};    ///< routing keys in depth order, as in "model.layers.0.mlp"
  bool norm_behind_experts = false;         ///< true: a norm follows the experts, so scaling their output has no effect
  std::set<std::string> float32_tensors{};  ///< tensors that are never of a narrower type
  GateRule gates{};
  GgufRule gguf{};
  lora::PeftFamily peft = lora::PeftFamily::kUntried;
  TokenWork work{};
};

/// Holds the options of one forward call. The call borrows everything that the pointers and spans refer to.
struct ForwardOptions {
  /// Factors by site; null: no adapter. Every site must exist in the model.
  const lora::AdapterState* adapters = nullptr;
  const lora::AdapterState* base_change = nullptr;  ///< the run's change of the base, with scaling 1; null: none
  nn::RouterOptions router{};
  nn::Compute compute{};  ///< engine, product table and precision
  /// Cache to read and to append to, for generation; null: none. Not allowed with prefix sharing.
  nn::KvCache* cache = nullptr;
  bool last_only = false;  ///< return hidden states of each sequence's last token only, [B, D]; needs `cache`
  /// Output: the routing, one entry per micro-batch of the batch; empty: routing is not recorded.
  std::span<nn::RoutingByLayer> routing{};
  /// The factors as CausalLm::prepared() converts them; null: each pass converts its own.
  std::shared_ptr<const nn::PreparedFactors> factors{};
  /// On a GPU: records the layers of training steps and of passes over a cache as CUDA graphs, and replays them
  /// (nn/engine/pass_graphs.h); null: all layers run operator by operator. A training step needs a batch of
  /// data::padded() and null `factors`. Passes over a cache are recorded with `factors` only.
  nn::PassGraphs* graphs = nullptr;
};

/// A causal language model.
/// Threads: several threads may call any function on one model at once. Calls only read the base. A call changes only
/// the cache and the routing of its own options.
class CausalLm {
 public:
  virtual ~CausalLm() = default;

  virtual const ModelSpec& spec() const = 0;

  /// Computes the final hidden states, after the last norm.
  /// \return [R, D]; [B, D] with options.last_only. float32, or float64 if the base is float64
  /// \throws kData when a token id or a position is out of range; kConfig when an adapter names an unknown site; kShape
  /// when ids and positions disagree in size; kInternal when options.cache or options.routing does not fit the batch
  virtual at::Tensor hidden(const data::PackedBatch& batch, const ForwardOptions& options) const = 0;
  /// Returns options for several passes without gradients over the same factors. An engine that converts factors does
  /// so once for all of them. The result is valid until a factor changes.
  virtual ForwardOptions prepared(ForwardOptions options) const { return options; }
  /// Returns the head matrix [V, D], which is the embedding when the two are tied.
  virtual const nn::FrozenWeight& head() const = 0;
  /// Returns the type of hidden states: float64 if the embedding is float64, else float32.
  virtual at::ScalarType activations() const {
    return head().values_OI.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }
  /// Returns the device of the weights.
  c10::Device device() const { return head().values_OI.device(); }
  /// Computes the logits of rows of hidden states.
  /// \param options  the options of the call of hidden() that made the rows
  /// \return [N, V] float32, or float64 if the base is float64
  at::Tensor logits(const at::Tensor& hidden_ND, const ForwardOptions& options) const;
  /// Computes the log-probability of one target for each of N rows of hidden states, without a gradient.
  /// \param targets_N  int64, on the CPU or the device of the rows \param options  as for logits()
  /// \return [N], on the device of the rows
  at::Tensor target_logprobs(const at::Tensor& hidden_ND, const at::Tensor& targets_N,
                             const ForwardOptions& options) const;
  /// Computes the loss over the batch's targets as a sum and a count. The head is applied to the target rows only.
  /// \throws as hidden()
  nn::LossSum loss(const data::PackedBatch& batch, const ForwardOptions& options) const;
  /// Computes the loss of each micro-batch of the batch in one forward pass. \return one entry per micro-batch, in
  /// order
  /// \throws as hidden()
  std::vector<nn::LossSum> losses(const data::PackedBatch& batch, const ForwardOptions& options) const;
  /// Computes the final hidden states of the rows that have a target. \return [N, D] \throws as hidden()
  at::Tensor target_hidden(const data::PackedBatch& batch, const ForwardOptions& options) const;
  /// Computes losses(batch, options) from the result of target_hidden(batch, options).
  std::vector<nn::LossSum> losses(const at::Tensor& target_hidden_ND, const data::PackedBatch& batch,
                                  const ForwardOptions& options) const;

  /// Returns every linear layer or stack of experts that an adapter may be added to.
  virtual const lora::Sites& all_sites() const = 0;
  /// Returns the sites whose name ends in one of `targets` (q_proj, gate_proj, gate, ...).
  /// \throws kConfig when the model has no site of that name, or when a target is named twice
  lora::Sites sites(std::span<const std::string> targets) const;

  /// Returns the base tensors by checkpoint name, for saving, merging and pre-training. They share memory with the
  /// model. For an int8 weight the map holds the values, and its scales under the name plus ".scales"; these entries
  /// are for counting only.
  virtual TensorMap parameters() const = 0;

  /// Returns the text of config.json, unchanged.
  virtual const std::string& config_json() const = 0;

 private:
  std::vector<nn::LossSum> losses_of(const at::Tensor& target_hidden_ND, const data::PackedBatch& batch,
                                     std::span<const int64_t> counts, const ForwardOptions& options) const;
};

/// Selects the number type in which the base is stored. kCheckpoint keeps the type of each tensor in the file and maps
/// the file into memory without copying.
enum class BaseDtype { kCheckpoint, kFloat32, kBFloat16, kFloat64 };
constexpr auto names(BaseDtype) {
  return std::array{config::EnumName<BaseDtype>{"checkpoint", BaseDtype::kCheckpoint},
                    config::EnumName<BaseDtype>{"float32", BaseDtype::kFloat32},
                    config::EnumName<BaseDtype>{"bfloat16", BaseDtype::kBFloat16},
                    config::EnumName<BaseDtype>{"float64", BaseDtype::kFloat64}};
}

/// Selects the format of the weights of matrix products: experts, attention projections, dense blocks and the head.
enum class BaseFormat {
  kStored,  ///< the type that BaseDtype selects
  kInt8,    ///< int8 with one scale per row (nn/dense/frozen_weight.h); routers, norms and embeddings keep their type
};
constexpr auto names(BaseFormat) {
  return std::array{config::EnumName<BaseFormat>{"stored", BaseFormat::kStored},
                    config::EnumName<BaseFormat>{"int8", BaseFormat::kInt8}};
}

/// Selects how and where the base is stored.
struct BaseStorage {
  BaseStorage(BaseDtype type = BaseDtype::kCheckpoint) : dtype(type) {}  // NOLINT(google-explicit-constructor)
  BaseDtype dtype;
  BaseFormat format = BaseFormat::kStored;
  std::filesystem::path cache{};  ///< kInt8: folder for the quantised file (models/quantized_base.h); empty: in memory
  /// kAten: the experts of a layer share one tensor, and `format` must be kStored.
  nn::EngineKind engine = nn::EngineKind::kKernels;
  c10::Device device = c10::kCPU;  ///< device of the weights; a device other than the CPU needs kAten
};

/// Says what happens with an adapter that lies in the folder of a model, beside its weights. transformers applies it
/// when it loads the folder, so the base without it is another model.
enum class BesideAdapter {
  kRefused,          ///< an error that names the file
  kAppliedByCaller,  ///< the caller applies it
};

/// Returns the folder if it is a model's folder with an adapter_config.json, else nullopt.
std::optional<std::filesystem::path> adapter_beside(const std::filesystem::path& folder);
/// Checks that a model's folder has no adapter_config.json. \throws kCheckpoint naming the file
void check_no_adapter_beside(const std::filesystem::path& folder);

/// Loads a model from a Hugging Face folder with config.json and one or several safetensors files in either
/// ExpertLayout. The `model_type` of config.json selects the family.
/// \throws kCheckpoint naming folder and tensor when a tensor is missing, unexpected, misshapen or not finite, when a
/// file is truncated, when a setting or the family is unsupported, or for an adapter in the folder that nobody applies;
/// kConfig when `storage` is inconsistent
std::unique_ptr<CausalLm> load_model(const std::filesystem::path& folder, const BaseStorage& storage = {},
                                     BesideAdapter beside = BesideAdapter::kRefused);

/// Constructs a model without weights, to read its spec, sites, tensor names and shapes. It takes almost no time or
/// memory. Never call hidden() on it.
/// \param path  a model folder or a config.json
/// \throws kCheckpoint when config.json is missing or unsupported, or describes a model that is too large, or for an
/// adapter in the folder that nobody applies
std::unique_ptr<CausalLm> load_shape(const std::filesystem::path& path, const BaseStorage& storage = {},
                                     BesideAdapter beside = BesideAdapter::kRefused);

/// Returns the total size of the files of weights that load_model() maps (models/weight_files.h), in bytes; 0 for a
/// folder without weights. \throws kCheckpoint when the index of several files is malformed
int64_t weight_file_bytes(const std::filesystem::path& folder);

/// Creates a randomly initialised model of the shape that `config_json` describes. Linear and embedding weights have
/// mean 0 and standard deviation initializer_range, norm weights are ModelEntry::norms, biases are 0.
/// \param storage  kCheckpoint means float32; `format` and `cache` are not used
/// \throws kCheckpoint when config.json is missing or unsupported
std::unique_ptr<CausalLm> init_model(const std::filesystem::path& config_json, const BaseStorage& storage,
                                     uint64_t seed);

constexpr int64_t kShardBytes = int64_t{5} << 30;  ///< largest shard in bytes, as in Hugging Face checkpoints

/// Selects how a checkpoint stores the experts of a layer. Loading detects the layout.
enum class ExpertLayout {
  kOriginal,  ///< layout of the family's published checkpoints, which transformers writes by default
  kFused,     ///< layout in which transformers 5 computes (save_original_format=False): gate_up_proj and down_proj
};
constexpr auto names(ExpertLayout) {
  return std::array{config::EnumName<ExpertLayout>{"original", ExpertLayout::kOriginal},
                    config::EnumName<ExpertLayout>{"fused", ExpertLayout::kFused}};
}

/// Writes a model folder: config.json with its dtype updated, and model.safetensors, in shards if it is larger than
/// `shard_bytes`. The folder is renamed into place when it is complete.
/// \throws kIo when `folder` exists and is not empty, or when the disk is too small
void save_model(const CausalLm& model, const std::filesystem::path& folder, BaseDtype dtype = BaseDtype::kCheckpoint,
                int64_t shard_bytes = kShardBytes);

/// Writes the folder that save_model(init_model(...)) would write, one tensor at a time. It needs memory for the
/// largest tensor only (docs/decisions/0028-tensor-by-tensor.md).
/// \throws kIo as save_model(), before any tensor is drawn; kCheckpoint when config.json is missing or unsupported
void write_random_model(const std::filesystem::path& config_json, const std::filesystem::path& folder, BaseDtype dtype,
                        uint64_t seed, int64_t shard_bytes = kShardBytes,
                        ExpertLayout layout = ExpertLayout::kOriginal);

/// Maps "builtin:NAME" to the shipped folder of that model, and a hub name, "org/name" or "hf://org/name", to its
/// snapshot in the local hub cache (base/plain/hub_cache.h). If a folder has that path, it is used instead of the
/// cache. Any other text is returned as a path, with "~" replaced (base/plain/data_path.h). \throws kConfig when the
/// cache lacks a name after "hf://", or when `path` is empty, not UTF-8 or has control characters
std::filesystem::path resolve_model_path(const std::string& path);
/// As resolve_model_path(). \throws kConfig also for a name "org/name" that is no folder and that the cache lacks; the
/// message has the command that downloads it
std::filesystem::path find_model_folder(const std::string& path);
/// Returns text that stands for the same folder later and from every working folder: "builtin:NAME" as it is, a hub
/// name with its commit, "hf://org/name@COMMIT", any other path in its absolute form. \throws as find_model_folder()
std::string settled_model_path(const std::string& path);

class ModelConfig;   // models/checkpoint.h
class TensorSource;  // models/tensor_source.h

/// Describes a model family: one entry of the registry (models/model_registry.cpp).
struct ModelEntry {
  std::string_view family;  ///< `model_type` of its config.json
  /// True: the family has mixture layers.
  bool has_experts;
  std::string_view source;  ///< source that `evenkeel list models` prints
  /// JSON object with the config.json keys that a very small model of the family needs in addition to the usual ones.
  /// The contract tests (tests/contract) build their models from it. A sparse family has 6 experts, 3 per token.
  std::string_view example{};
  double norms = 1;  ///< value of norm weights in a random model; 0 where a norm multiplies by 1 + weight
  /// Builds the model that `config` describes from `source`. load_model() then checks that every tensor was taken.
  std::unique_ptr<CausalLm> (*make)(const ModelConfig& config, TensorSource& source) = nullptr;
};
/// Returns all registered families.
std::span<const ModelEntry> model_families();
/// Registers a family that another program defines (docs/tutorial-new-family.md). Call it first in main(): references
/// to earlier entries are invalid afterwards.
/// \throws kConfig when the name is taken; kInternal when `make` is null
void add_family(const ModelEntry& entry);

}  // namespace evenkeel::models
