/// \file  Provides a fixture for the tests of src/fed: a run of three unequal clients on a small random model.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/testing.h"
#include "data/builtin_text.h"
#include "fed/exchange/client.h"
#include "fed/round/round.h"
#include "fed/run/make_experiment.h"
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

inline void expect_same(const lora::AdapterState& x, const lora::AdapterState& y) {
  ASSERT_EQ(x.size(), y.size());
  for (const auto& [site, f] : x)
    for (const auto& factor : lora::kFactors) {
      const auto &one = f.*factor.tensor, &other = y.at(site).*factor.tensor;
      ASSERT_EQ(one.defined(), other.defined()) << site;
      if (one.defined()) {
        EXPECT_TRUE(at::equal(one, other)) << site;
      }
    }
}

inline void expect_same(const methods::ServerState& x, const methods::ServerState& y) {
  EXPECT_EQ(x.round, y.round);
  expect_same(x.global.adapters, y.global.adapters);
  expect_same(x.global.base_delta, y.global.base_delta);
  expect_same(x.common.fixed, y.common.fixed);
  expect_same(x.common.base_change, y.common.base_change);
  for (const auto& [name, tensor] : x.global.extras) EXPECT_TRUE(at::equal(tensor, y.global.extras.at(name))) << name;
  for (const auto& [name, tensor] : x.memory) EXPECT_TRUE(at::equal(tensor, y.memory.at(name))) << name;
}

inline OrderedJson without_seconds(fed::RoundRecord record) {
  record.seconds = {};
  for (auto& client : record.clients) client.seconds = 0;
  return record::write(record);
}

/// Makes a random model and its tokenizer once per test suite, and experiments on them.
class SmallRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    temporary().emplace();
    write_file_atomic(root() / "config.json", kSmallModel);
    models::save_model(*models::init_model(root() / "config.json", models::BaseDtype::kFloat32, 1), root() / "model");
    write_file_atomic(root() / "model" / "tokenizer.json",
                      tokenizer::train_tokenizer(data::builtin_documents(40, 1), {.vocab_size = 420}));
  }
  static void TearDownTestSuite() { temporary().reset(); }
  static std::optional<TemporaryFolder>& temporary() {
    static std::optional<TemporaryFolder> folder;
    return folder;
  }
  static const fs::path& root() { return temporary()->path(); }

  static fed::Snapshot beginning(fed::Experiment& e) { return fed::before_first_round(e.server, e.fabric); }

  /// Returns the setup of the evaluation client for `state` at `budget`.
  static methods::LocalSetup setup_at(fed::Experiment& e, const methods::ServerState& state, double budget) {
    fed::restore_clients(e.server, e.fabric, {.state = state});
    return fed::Client(e.fabric.context, {}).prepare(e.server.scoring_task(state, {.budget = budget}, {}));
  }

  static fed::Experiment experiment(std::string_view method, fed::Purpose purpose = fed::Purpose::kTrain,
                                    std::string_view setting = "threads=1",
                                    std::initializer_list<std::string_view> more = {}) {
    auto table = config::Table::parse(kSmallRun, "unit.toml");
    table.set(concat("model.path=\"", (root() / "model").string(), "\""));
    table.set(concat("method.name=\"", method, "\""));
    table.set(setting);
    for (const auto one : more) table.set(one);
    auto e = fed::make_experiment(fed::settle(fed::ExperimentConfig::read(table), {}), purpose);
    e.server.dry_run(beginning(e).state);
    return e;
  }
};

}  // namespace evenkeel::testing
