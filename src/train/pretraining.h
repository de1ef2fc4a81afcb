/// \file  Trains a small model of any family from scratch on text. The built-in models were made with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/format/config_table.h"
#include "base/system/interrupt.h"
#include "data/builtin_world.h"
#include "models/causal_lm.h"
#include "models/memory_plan.h"
#include "nn/compute/engine_choice.h"
#include "tokenizer/tokenizer.h"
#include "train/optimizer.h"
#include "train/rate_schedule.h"

namespace evenkeel::train {

/// Config of a pre-training. The texts of visit() explain the keys.
struct PretrainConfig {
  std::string name = "pretrain";
  int64_t seed = 42;

  struct Model {
    std::string config;     ///< path of a config.json of any family; it says shape and experts per token
    std::string tokenizer;  ///< path of a tokenizer.json or its folder; empty: a tokenizer is trained on the text
    models::BaseDtype dtype = models::BaseDtype::kBFloat16;
    std::string device = "cpu";
    nn::EngineChoice engine = nn::EngineChoice::kAuto;
    void visit(auto& field) {
      field("config", config, "config.json of the new model, of a family in `evenkeel list models`");
      field("tokenizer", tokenizer, "tokenizer.json to use; empty: one is trained on the text to fill vocab_size");
      field("dtype", dtype, "precision of the saved weights (training itself is float32)");
      field("device", device, "device of weights and training: cpu, cuda, cuda:N, or auto (a GPU if there is one)");
      field("engine", engine,
            "operators: kernels (this program's, CPU only), aten (LibTorch's, any device), or auto (aten on a GPU, "
            "otherwise kernels)");
    }
    void resolve(const config::Table& table) const;
    /// Replaces "auto" in device and engine. \throws kConfig as find_device(), and for engine "kernels" on a GPU
    void settle();
    /// Returns the engine, which computes in float32. REQUIRES settle()
    nn::Compute compute() const { return {.engine = nn::engine_on(engine, device)}; }
  } model;

  struct Data {
    std::vector<std::string> files;
    int64_t documents = 0;
    data::world::WorldSize world = data::world::WorldSize::kSmall;
    double validation = 0.01;
    void visit(auto& field) {
      field("files", files, "UTF-8 text files, each one document; $EVENKEEL_DATA/ at the start is replaced");
      field("documents", documents, "number of generated built-in documents added to the text");
      field("world", world,
            "world that the built-in documents describe: small (24 animals, tools, routines; task builtin) or large (4 "
            "topics x 120 entities x 6 relations; task builtin_large)");
      field("validation", validation, "share of the sequences held out for the validation loss, in [0, 0.5]");
    }
    void resolve(const config::Table& table) const {
      table.check_integer("documents", documents, 0, limits::kRows);
      table.check(validation >= 0 && validation <= 0.5, "validation", validation, "0 to 0.5");
    }
  } data;

  struct Train {
    int64_t steps = 1000;
    int64_t sequence_length = 256;
    int64_t batch_size = 16;
    std::vector<int64_t> top_k;                                                           ///< each 1 .. K_max
    RateSchedule schedule{.kind = RateKind::kCosine, .warmup = 100, .final_ratio = 0.1};  ///< over steps
    double clip_norm = 1.0;
    double load_balance = 0.01;
    double router_z = 0.001;
    int64_t log_every = 20;
    int64_t checkpoint_every = 200;
    OptimizerConfig optimizer{.lr = 1e-3, .betas = {0.9, 0.95}, .eps = kPretrainingEps, .weight_decay = 0.1};
    void visit(auto& field) {
      field("steps", steps, "optimiser steps");
      field("sequence_length", sequence_length, "tokens per sequence");
      field("batch_size", batch_size, "sequences per step");
      field(
          "top_k", top_k,
          "numbers of experts per token, up to that of model.config; each step draws one, every entry of the list with "
          "equal probability; empty: always that of model.config");
      field("warmup_steps", schedule.warmup, "steps of linear warm-up; cosine decay follows");
      field("final_lr_ratio", schedule.final_ratio, "learning rate at the last step, as a share of the peak");
      field("clip_norm", clip_norm, "largest norm of the whole gradient; 0: no clipping");
      field("load_balance", load_balance, "coefficient of the load-balancing loss (value 1 when balanced)");
      field("router_z", router_z, "coefficient of the router z-loss");
      field("log_every", log_every, "steps between records of the loss curve");
      field("checkpoint_every", checkpoint_every, "steps between checkpoints");
      field("optimizer", optimizer, "");
    }
    void resolve(const config::Table& table) const;
  } train;

  void visit(auto& field) {
    field("name", name, "name of the run; the output folder is models/<name> unless --out is given");
    field("seed", seed, "seed of weights and data order");
    field("model", model, "");
    field("data", data, "");
    field("train", train, "");
  }
  void resolve(const config::Table& table) const { table.check_integer("seed", seed, 0, limits::kAny); }
};

/// Estimates the main memory that pretrain() will need. All weights are trained, in float32. With a GPU, main memory
/// holds only the text and a copy of the weights. REQUIRES Model::settle()
/// \throws kCheckpoint when model.config is invalid
models::MemoryPlan memory_plan(const PretrainConfig& config);
/// Estimates the memory that pretrain() will need on a GPU. \throws as memory_plan()
models::MemoryPlan device_memory_plan(const PretrainConfig& config);
/// Compares both estimates with the memory available. \throws kConfig when one does not fit
void require_memory(const PretrainConfig& config, c10::Device device);

/// Trains a model and writes it to the folder `out`, which is locked during the call. Without `resume`, `out` must be
/// missing or empty. With it, training continues from the checkpoint in `out`, and the model is bit-identical to the
/// model of an uninterrupted run on the same device and engine. Device and engine may change on resuming, with a
/// warning. A run without a checkpoint starts again from step 0. A finished run is left as it is.
/// The folder then contains the model (config.json, model.safetensors, tokenizer.json), the config with all keys
/// (pretrain.toml), and the loss curve with tokens/s (pretrain.jsonl; base/plain/sealed.h). An unfinished run also has
/// checkpoint.json and, after the first checkpoint, checkpoint-<step>.safetensors. checkpoint.json names that file and
/// its hash.
/// \param stop  called after every step; if it returns true, a checkpoint is saved and the call returns
/// \param experts  how the finished model stores its experts
/// \return false when `stop` ended the call, true when the model is complete
/// \throws kIo when `out` is not empty and `resume` is false or `out` has no run, or when `out` is in use; kConfig when
/// the run to resume has another config, model.config or text, the memory is too small, the device does not exist, a
/// sequence is longer than the model's positions, the text leaves no sequence to train on or the tokenizer has more ids
/// than the model; kCheckpoint naming a damaged file. In these cases a run with a checkpoint is not changed.
/// \throws kNumeric when a loss or gradient is not finite
bool pretrain(const PretrainConfig& config, const std::filesystem::path& out, bool resume, const StopRequest& stop,
              models::ExpertLayout experts = models::ExpertLayout::kOriginal);

}  // namespace evenkeel::train
