/// \file  A run of three unequal clients on a small random model, for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/testing.h"
#include "data/builtin_text.h"
#include "fed/round.h"
#include "tokenizer/bpe_training.h"

namespace evenkeel::testing {

inline constexpr std::string_view kSmallModel =
    R"({"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], "vocab_size": 420,
 "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "num_experts": 7, "num_experts_per_tok": 4, "norm_topk_prob": false, "hidden_act": "silu", "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "max_position_embeddings": 1024, "tie_word_embeddings": false, "attention_bias": false,
 "clip_qkv": null, "initializer_range": 0.1, "eos_token_id": 0, "pad_token_id": 1})";

inline constexpr std::string_view kSmallRun = R"(
name = "unit"
seed = 3
threads = 1
[model]
compute_dtype = "float32"
[lora]
rank = 3
alpha = 4
[data]
limit = 20
cutoff = 640
[clients]
count = 3
budgets = [0.25, 0.5, 1.0]
[train]
rounds = 2
local_epochs = 1.0
batch_size = 2
accumulation = 2
optimizer = { lr = 1e-2 }
[evaluate]
budgets = [0.25, 1.0]
limit = 2
)";

/// A random model with a tokenizer of its own, made once.
class SmallRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    temporary().emplace();
    write_file_atomic(root() / "config.json", kSmallModel);
    save_model(*init_model(root() / "config.json", BaseDtype::kFloat32, 1), root() / "model");
    write_file_atomic(root() / "model" / "tokenizer.json",
                      train_tokenizer(builtin_documents(40, 1), {.vocab_size = 420}));
  }
  static void TearDownTestSuite() { temporary().reset(); }
  static std::optional<TemporaryFolder>& temporary() {
    static std::optional<TemporaryFolder> folder;
    return folder;
  }
  static const fs::path& root() { return temporary()->path(); }

  static Experiment experiment(std::string_view method, Purpose purpose = Purpose::kTrain,
                               std::string_view setting = "threads=1") {
    auto table = config::Table::parse(kSmallRun, "unit.toml");
    table.set(concat("model.path=\"", (root() / "model").string(), "\""));
    table.set(concat("method.name=\"", method, "\""));
    table.set(setting);
    auto config = ExperimentConfig::read(table);
    config.resolve();
    auto e = make_experiment(std::move(config), purpose);
    rehearse(e, before_first_round(e).state);
    return e;
  }
};

}  // namespace evenkeel::testing
