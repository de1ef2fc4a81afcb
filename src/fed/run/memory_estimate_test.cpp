#include "fed/run/memory_estimate.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fed/round/starting_gradients.h"
#include "fed/testing.h"
#include "scoring/generation.h"

namespace evenkeel::fed {
namespace {

using testing::SmallRun;

int64_t part(const models::MemoryPlan& plan, std::string_view what) {
  for (const auto& one : plan.parts)
    if (one.what.find(what) != std::string::npos) return one.bytes;
  return -1;
}

class Foresight : public testing::SmallRun {
 protected:
  /// Returns the plan. \param prompts  batch size of evaluations; with few, training needs the most memory
  static models::MemoryPlan plan(std::string_view setting, int64_t prompts = 1) {
    auto e = experiment("fedit", Purpose::kDryRun, setting);
    e.use(e.server.config.with([&](ExperimentConfig& values) {
      values.evaluate.batch_size = prompts;
      values.evaluate.limit = 0;
    }));
    return memory_plan(e);
  }
};

TEST_F(Foresight, DoesNotLoadWeights) {
  const auto foreseen = experiment("fedit", Purpose::kDryRun), real = experiment("fedit");
  EXPECT_TRUE(foreseen.fabric.context.model->head().values_OI.is_meta());
  EXPECT_FALSE(real.fabric.context.model->head().values_OI.is_meta());
  EXPECT_EQ(foreseen.fabric.shards.rows, real.fabric.shards.rows);
  ASSERT_EQ(foreseen.server.sites.size(), real.server.sites.size());
  EXPECT_EQ(memory_plan(foreseen).needed(), memory_plan(real).needed());
  EXPECT_EQ(memory_plan(real).mapped, static_cast<int64_t>(fs::file_size(root() / "model" / "model.safetensors")));
}

TEST_F(Foresight, FilesThatAreNotLoadedAreNoWeights) {
  const auto plans = [] {
    return std::vector<int64_t>{plan("model.dtype=\"float64\"").needed(), plan("model.dtype=\"float64\"").mapped,
                                plan("threads=1").needed(), plan("threads=1").mapped,
                                device_memory_plan(experiment("fedit", Purpose::kDryRun)).needed()};
  };
  const auto without = plans();
  const auto copy = root() / "model" / "consolidated.safetensors";
  fs::copy_file(root() / "model" / "model.safetensors", copy);
  EXPECT_EQ(plans(), without);
  remove_path(copy);
}

TEST_F(Foresight, AnEvaluationOnAGpuHoldsPromptsBesideTheirPlaces) {
  auto e = experiment("fedit", Purpose::kDryRun);
  const auto bytes_of = [&](const models::MemoryPlan& plan) { return part(plan, "evaluation of 1000 prompts"); };
  int64_t longest = 0;
  for (const auto& shard : e.fabric.shards.examples)
    for (const auto& example : shard) longest = std::max(longest, std::ssize(example.ids));
  const scoring::PromptSizes sizes{.count = 1000, .tokens = 1000 * longest, .longest = longest};
  for (const auto decode : {scoring::Decode::kGreedy, scoring::Decode::kBeam4}) {
    e.use(e.server.config.with([&](ExperimentConfig& values) {
      values.evaluate.batch_size = 1000;
      values.evaluate.limit = 0;
      values.evaluate.decode = decode;
    }));
    const auto tokens = [&](c10::Device device) {
      return scoring::cached_tokens(sizes, e.server.config->evaluate.max_new_tokens,
                                    decode == scoring::Decode::kBeam4 ? 4 : 1, device, nn::EngineKind::kKernels);
    };
    EXPECT_EQ(bytes_of(device_memory_plan(e)) - bytes_of(memory_plan(e)),
              models::cache_bytes(e.server.model, 1, tokens(c10::kCUDA) - tokens(c10::kCPU)));
  }
}

TEST_F(Foresight, OperatorsOnTheCpuHoldPaddedSequencesRowsOfExpertsAndPackedFactors) {
  const auto e = experiment("fedit", Purpose::kDryRun);
  const auto& model = e.server.model;
  int64_t longest = 0;
  for (const auto& shard : e.fabric.shards.examples)
    for (const auto& example : shard) longest = std::max(longest, std::ssize(example.ids));
  const auto kernels = plan("model.engine='kernels'"), aten = plan("model.engine='aten'");
  const int64_t batch = e.server.config->train.batch_size;
  const int64_t padded = models::padded_attention_bytes(model, {.sequences = batch, .longest = longest});
  EXPECT_EQ(padded, 4 * batch * longest * 4 * model.hidden_size * model.num_layers) << "q, k, v and the output";
  const int64_t rows = 4 * longest * model.top_k * (4 * 24 + 5 * 20);
  EXPECT_GE(part(aten, "micro-batches of"), part(kernels, "micro-batches of") + padded + rows);
  EXPECT_GT(part(aten, "packed for their products"), 0);
  EXPECT_EQ(part(kernels, "packed for their products"), -1);
}

TEST_F(Foresight, EveryNamedKeyReducesItsPart) {
  EXPECT_LT(part(plan("train.batch_size=2"), "micro-batches of"), part(plan("train.batch_size=4"), "micro-batches of"));
  EXPECT_LT(part(plan("data={limit=20,cutoff=30,mask_prompt=false}"), "micro-batches of"),
            part(plan("data={limit=20,cutoff=640,mask_prompt=false}"), "micro-batches of"));
  EXPECT_LT(part(plan("train={batch_size=1,accumulation=50,merge_tokens=0}"), "micro-batches of"),
            part(plan("train={batch_size=1,accumulation=50}"), "micro-batches of"));
  EXPECT_LT(part(plan("lora.rank=3"), "client"), part(plan("lora.rank=5"), "client"));
  EXPECT_LT(part(plan("lora.targets=[\"q_proj\"]"), "server"), part(plan("lora.rank=3"), "server"));
  EXPECT_LT(part(plan("data.limit=20"), "rows"), part(plan("data.limit=40"), "rows"));
  EXPECT_EQ(part(plan("model.dtype=\"checkpoint\""), "another type"), -1);
  EXPECT_GT(part(plan("model.dtype=\"float64\""), "another type"), 0);
  EXPECT_EQ(part(plan("threads=1"), "evaluation of"), -1);
  EXPECT_LT(part(plan("threads=1", 512), "evaluation of"), part(plan("threads=1", 1024), "evaluation of"));
}

TEST_F(Foresight, MemoryOfMethodsThatChangeTheBaseGrowsByRoundUpToTheWeights) {
  const auto merged = [](std::string_view method, std::string_view rounds) {
    return part(memory_plan(experiment(method, Purpose::kDryRun, rounds)), "merges into the base");
  };
  EXPECT_EQ(merged("fedit", "train.rounds=3"), -1);
  for (const auto* method : {"flora", "fedex-lora", "florist"}) {
    EXPECT_LT(merged(method, "train.rounds=1"), merged(method, "train.rounds=2")) << method;
    EXPECT_EQ(merged(method, "train.rounds=1000"), merged(method, "train.rounds=2000")) << method;
  }
}

TEST_F(Foresight, AServerOfHiddenUploadsHoldsTheirSumAsIntegersAndAsNumbers) {
  const auto sum_of = [](SecureMode mode, int64_t bits) {
    auto e = experiment("fedit", Purpose::kDryRun, "lora.rank=1000");
    e.use(e.server.config.with([&](ExperimentConfig& values) {
      values.secure_aggregation.mode = mode;
      values.secure_aggregation.bits = bits;
    }));
    return part(server_memory_plan(e), "the sum of hidden uploads");
  };
  EXPECT_EQ(sum_of(SecureMode::kOff, 32), -1);
  const int64_t adapter = sum_of(SecureMode::kMasks, 32) / 4;
  EXPECT_GT(adapter, 0);
  EXPECT_EQ(sum_of(SecureMode::kSums, 64), 6 * adapter);
}

TEST_F(Foresight, AMethodThatBeginsWithGradientsHoldsThoseOfALayer) {
  const lora::Sites sites{{"model.layers.0.mlp.experts.up_proj", {.experts = 4, .in = 10, .out = 6}},
                          {"model.layers.0.self_attn.q_proj", {.in = 10, .out = 20}},
                          {"model.layers.1.self_attn.q_proj", {.in = 10, .out = 25}}};
  EXPECT_EQ(starting_gradient_bytes(sites), 4 * (5 * (4 * 10 * 6 + 10 * 20) + 4 * 10 * 10 + 10 * 10));
  const auto gradients_of = [](std::string_view method) {
    auto e = experiment(method, Purpose::kTrain, "data={limit=4,cutoff=40,mask_prompt=false}");
    e.use(e.server.config.with(
        [&](ExperimentConfig& values) { values.evaluate.batch_size = values.evaluate.limit = 1; }));
    e.server.sites["model.layers.0.wide"] = {.in = 4096, .out = 8192};
    return part(memory_plan(e), "gradients of a layer");
  };
  EXPECT_GT(gradients_of("fed-sb"), 5 * 4 * 4096 * 8192);
  EXPECT_EQ(gradients_of("fedit"), -1);
}

TEST_F(Foresight, ARunThatDoesNotFitIsRefusedBeforeWeightsAreLoaded) {
  const auto needed = plan("threads=1").needed();
  const machine::Memory less{
      .physical = needed, .available = needed - 1, .address_space = needed * 4, .limited_by = "control group"};
  EXPECT_THROW(models::require_memory(plan("threads=1"), less, "the run"), Error);
  try {
    experiment("fedit", Purpose::kTrain, "train.batch_size=65536");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("micro-batches of"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("lower train.batch_size, train.merge_tokens or data.cutoff"),
              std::string::npos);
  }
}

TEST_F(Foresight, CountsGeneratedRowsBeforeGeneratingThem) {
  try {
    experiment("fedit", Purpose::kDryRun, "data.limit=10000000");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("data.limit is 10000000 rows to generate"), std::string::npos);
  }
}

}  // namespace
}  // namespace evenkeel::fed
