#include "train/pretraining.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/testing.h"

namespace evenkeel::train {
namespace {

TEST(PretrainConfig, ErrorsNameTheKeyThatIsOutOfRange) {
  const auto table = config::Table::parse("[model]\nconfig = \"x.json\"\n[train]\nbatch_size = 0\n", "tiny.toml");
  try {
    config::read<PretrainConfig>(table);
    FAIL() << "batch_size 0 was accepted";
  } catch (const Error& error) {
    for (const std::string words : {"train.batch_size is 0", "tiny.toml, line 4"})
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(PretrainConfig, ErrorsNameTheBoundOfTooLargeNumbers) {
  for (const std::string assignment :
       {"train.steps=9223372036854775807", "train.sequence_length=4611686018427387904",
        "train.batch_size=1000000000000", "train.warmup_steps=9223372036854775807",
        "train.log_every=9223372036854775807", "train.checkpoint_every=9223372036854775807",
        "train.final_lr_ratio=1e300", "train.clip_norm=1e300", "train.load_balance=1e300", "train.router_z=1e300",
        "train.optimizer.lr=1e300", "data.documents=1000000000000000"}) {
    auto table = config::Table::parse("model = { config = \"x.json\" }", "unit.toml");
    table.set(assignment);
    try {
      config::read<PretrainConfig>(table);
      ADD_FAILURE() << assignment << " was accepted";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(assignment.substr(0, assignment.find('='))), std::string::npos) << text;
      EXPECT_NE(text.find(", up to "), std::string::npos) << text;
    }
  }
}

TEST(PretrainConfig, RejectsAnUntrainableModelBeforeInitialisation) {
  const testing::TemporaryFile model(R"({"model_type": "olmoe", "vocab_size": 50304, "hidden_size": 20480,
    "intermediate_size": 10240, "num_hidden_layers": 160, "num_attention_heads": 16, "num_experts": 640,
    "num_experts_per_tok": 8})");
  PretrainConfig config;
  config.model.config = model.path();
  config.data.documents = 3;
  try {
    pretrain(config, "unused", false, {});
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("pre-training needs about "), std::string::npos) << text;
    EXPECT_NE(text.find("weights, gradients and moments: lower the model's size"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace evenkeel::train
