/// \file  The contract of a model family, and loading. A model is a frozen base: adapters, router options and caches
/// are arguments, so one base serves every simulated client. Dimension names: R rows of a batch, N of them, D hidden,
/// V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/example.h"
#include "lora/adapter.h"
#include "nn/attention/kv_cache.h"
#include "nn/compute/compute.h"
#include "nn/dense/loss.h"
#include "nn/moe/routing.h"

namespace evenkeel {

/// Gate weights of the selected experts: of a softmax over all, as they are or renormalised to a sum of one.
struct GateRule {
  bool renormalise = false;
  std::string key{};  ///< of config.json that says so; empty: fixed by the family
  std::optional<bool>
      servers{};  ///< what llama.cpp, vLLM and SGLang compute whatever that key says; nothing: they obey
};

/// How llama.cpp knows a family.
struct GgufRule {
  std::string architecture{};      ///< general.architecture; empty: it computes no such model
  bool interleaves_heads = false;  ///< its rotary embedding turns neighbours, so rows of queries and keys are reordered
};

/// What a model takes per token, summed up by the leaves it is built of.
struct TokenWork {
  /// Multiply-adds of a forward pass; `scores` per position attended to, `experts` per selected expert.
  double attention = 0, scores = 0, router = 0, experts = 0, mlp = 0, head = 0;
  /// float32 values kept for a backward pass, besides those per selected expert.
  double kept = 0, kept_by_expert = 0;
  double widest = 0;  ///< the largest inner width of a feed-forward block
};

/// What the layers above need to know of a model.
struct ModelSpec {
  std::string family;  ///< as in the config's model_type: "olmoe"
  int64_t vocab_size = 0, hidden_size = 0;
  int64_t num_layers = 0, num_kv_heads = 0, head_width = 0;
  int64_t num_experts = 0;  ///< of a layer that has any; 0: dense
  int64_t top_k = 0;        ///< the checkpoint's own num_experts_per_tok
  int64_t max_positions = 0;
  std::vector<int64_t> eos{};             ///< ids each of which ends a generated text (models/end_tokens.h)
  int64_t end_of_text = -1, pad = -1;     ///< what training writes behind a text; -1 when the checkpoint names none
  std::vector<std::string> moe_layers{};  ///< routing keys, e.g. "model.layers.0.mlp", in depth order
  GateRule gates{};
  GgufRule gguf{};
  TokenWork work{};
};

/// How one forward call runs. Plain data, borrowed for the call.
struct ForwardOptions {
  const AdapterState* adapters = nullptr;     ///< sites the model has; null: the bare base
  const AdapterState* base_change = nullptr;  ///< what base-changing methods merged so far, scaling 1; null: nothing
  RouterOptions router{};
  Compute compute{};                    ///< who computes, and how
  KvCache* cache = nullptr;             ///< generation: appended to
  bool last_only = false;               ///< with a cache: hidden states of each sequence's last token, [B, D]
  std::span<RoutingByLayer> routing{};  ///< filled when given: one for each micro-batch of the batch
};

/// Threads: every function may be called from several at once, on one model: calls share nothing but the base, which
/// none of them writes. What a call changes is in its own options (cache, routing).
class CausalLm {
 public:
  virtual ~CausalLm() = default;

  virtual const ModelSpec& spec() const = 0;

  /// Final hidden states, normalised, ready for the head. \return [R, D] float32, or as options.last_only says
  virtual at::Tensor hidden(const PackedBatch& batch, const ForwardOptions& options) const = 0;
  /// The head matrix [V, D] (the embedding when tied): pass it to cross_entropy() with hidden states.
  virtual const FrozenWeight& head() const = 0;
  /// Where its weights are.
  c10::Device device() const { return head().values_OI.device(); }
  /// Logits of rows of hidden states. \param options  those of the call that made them. \return [N, V] float32
  at::Tensor logits(const at::Tensor& hidden_ND, const ForwardOptions& options) const;
  /// Loss over the batch's targets, head at those rows only.
  LossSum loss(const PackedBatch& batch, const ForwardOptions& options) const;
  /// The same of each of its micro-batches, in one pass.
  std::vector<LossSum> losses(const PackedBatch& batch, const ForwardOptions& options) const;

  /// Every linear that an adapter may stand beside.
  virtual const Sites& all_sites() const = 0;
  /// Those whose last name is in `targets` (q_proj, gate_proj, gate ...). \throws kConfig naming a target that the
  /// model lacks, or that is named twice.
  Sites sites(std::span<const std::string> targets) const;

  /// Base tensors by checkpoint name, aliases of the model's own: for saving, merging and pre-training. Of an int8
  /// weight the values, and the scales under its name with ".scales": for counting alone.
  virtual TensorMap parameters() const = 0;

  /// The checkpoint's config.json, as it was given.
  virtual const std::string& config_json() const = 0;
};

/// Storage of the frozen base. kCheckpoint keeps each tensor as it is in the file (memory-mapped, no copy).
enum class BaseDtype { kCheckpoint, kFloat32, kBFloat16, kFloat64 };
constexpr auto names(BaseDtype) {
  return std::array{config::EnumName<BaseDtype>{"checkpoint", BaseDtype::kCheckpoint},
                    config::EnumName<BaseDtype>{"float32", BaseDtype::kFloat32},
                    config::EnumName<BaseDtype>{"bfloat16", BaseDtype::kBFloat16},
                    config::EnumName<BaseDtype>{"float64", BaseDtype::kFloat64}};
}

/// What the weights that tokens are multiplied with are stored in: experts, attention projections, dense blocks, heads.
enum class BaseFormat {
  kStored,  ///< as BaseDtype says
  kInt8,    ///< int8 with a scale per row (nn/dense/frozen_weight.h). Routers, norms and embeddings stay as they are
};
constexpr auto names(BaseFormat) {
  return std::array{config::EnumName<BaseFormat>{"stored", BaseFormat::kStored},
                    config::EnumName<BaseFormat>{"int8", BaseFormat::kInt8}};
}

struct BaseStorage {
  BaseStorage(BaseDtype type = BaseDtype::kCheckpoint) : dtype(type) {}  // NOLINT(google-explicit-constructor)
  BaseDtype dtype;
  BaseFormat format = BaseFormat::kStored;
  std::filesystem::path cache{};  ///< kInt8: folder of the quantised file (models/quantized_base.h); empty: in memory
  Engine engine = Engine::kKernels;  ///< kAten: the experts of a layer lie in one tensor; kStored only
  c10::Device device = c10::kCPU;    ///< where the weights go; another one than the processor: kAten only
};

/// Loads a Hugging Face folder (config.json, single or sharded safetensors, either ExpertLayout). The family is
/// config.json's `model_type`.
/// Strict: \throws kCheckpoint (folder, tensor, what arrived, what was expected) on a missing, unexpected, misshapen or
/// non-finite tensor, a truncated file, an unsupported setting or another family (the known ones are listed).
std::unique_ptr<CausalLm> load_model(const std::filesystem::path& folder, const BaseStorage& storage = {});

/// The same model without weights: its spec, sites, names and shapes, in no time and no memory. Never call its forward.
/// \param path  a model folder, or a config.json
/// \throws kCheckpoint when config.json is missing, unsupported, or of no size that a model has.
std::unique_ptr<CausalLm> load_shape(const std::filesystem::path& path, const BaseStorage& storage = {});

/// Bytes of the safetensors files in a model folder: what load_model() maps.
int64_t weight_file_bytes(const std::filesystem::path& folder);

/// A randomly initialised model of `config.json`'s shape: linear and embedding weights N(0, initializer_range),
/// norms 1, biases 0.
std::unique_ptr<CausalLm> init_model(const std::filesystem::path& config_json, const BaseStorage& storage,
                                     uint64_t seed);

constexpr int64_t kShardBytes = int64_t{5} << 30;  ///< as on the hub

/// How a checkpoint holds the experts of a layer. Either is read, without being asked for.
enum class ExpertLayout {
  kOriginal,  ///< as the family's checkpoints on the hub have them: what transformers saves unless told otherwise
  kFused,     ///< as transformers 5 computes with them (save_original_format=False): gate_up_proj, down_proj
};
constexpr auto names(ExpertLayout) {
  return std::array{config::EnumName<ExpertLayout>{"original", ExpertLayout::kOriginal},
                    config::EnumName<ExpertLayout>{"fused", ExpertLayout::kFused}};
}

/// Writes config.json (as given at load or init, its dtype updated) and model.safetensors (sharded above `shard_bytes`)
/// in the hub's layout. `folder` must be new or empty; it appears whole or not at all.
void save_model(const CausalLm& model, const std::filesystem::path& folder, BaseDtype dtype = BaseDtype::kCheckpoint,
                int64_t shard_bytes = kShardBytes);

/// The folder that save_model(init_model(...)) writes, tensor by tensor: memory is the largest tensor, whatever the
/// model's size (docs/decisions/0028-tensor-by-tensor.md). \throws kIo when the disk has no room for it, before
/// anything is drawn.
void write_random_model(const std::filesystem::path& config_json, const std::filesystem::path& folder, BaseDtype dtype,
                        uint64_t seed, int64_t shard_bytes = kShardBytes,
                        ExpertLayout layout = ExpertLayout::kOriginal);

/// "builtin:tiny-olmoe" -> the shipped folder; anything else is a path, taken as it is.
std::filesystem::path resolve_model_path(const std::string& path);

class ModelConfig;   // models/checkpoint.h
class TensorSource;  // models/checkpoint.h

/// A family's row in the table (models/model_registry.cpp).
struct ModelEntry {
  std::string_view family;  ///< the model_type of its config.json
  bool has_experts;
  std::string_view source;  ///< for `evenkeel list models`
  /// JSON of the keys that a very small model of the family adds to the usual ones: the tests that every family passes
  /// (tests/contract) build their models from it. Sparse: 6 experts, 3 per token.
  std::string_view example{};
  /// Builds the model that `config` describes from `source`, strictly: every tensor is taken or refused.
  std::unique_ptr<CausalLm> (*make)(const ModelConfig& config, TensorSource& source) = nullptr;
};
std::span<const ModelEntry> model_families();
/// Adds a row for a family of another program (docs/tutorial-new-family.md): the first thing its main() does, because
/// references to rows do not survive it. \throws kConfig when the name is taken, kInternal for a row that makes
/// nothing.
void add_family(const ModelEntry& entry);

}  // namespace evenkeel
