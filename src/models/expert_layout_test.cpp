#include "models/expert_layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "base/testing.h"
#include "models/checkpoint.h"
#include "models/testing.h"

namespace evenkeel::models {
namespace {

using testing::kSequences;

const Json kShape{{"vocab_size", 11},         {"hidden_size", 12},        {"intermediate_size", 7},
                  {"num_hidden_layers", 2},   {"num_attention_heads", 6}, {"num_key_value_heads", 2},
                  {"initializer_range", 0.4}, {"torch_dtype", "float32"}};

class ExpertLayouts : public ::testing::TestWithParam<const char*> {
 protected:
  ExpertLayouts() {
    Json config = kShape;
    config["model_type"] = GetParam();
    config.update(Json::parse(testing::entry_of(GetParam()).example));
    write_file_atomic(root_ / "config.json", config.dump());
  }
  fs::path written(ExpertLayout layout, int64_t shard_bytes = kShardBytes) const {
    const auto folder = root_ / concat(config::name_of(layout), shard_bytes);
    write_random_model(root_ / "config.json", folder, BaseDtype::kFloat32, 5, shard_bytes, layout);
    return folder;
  }
  static at::Tensor hidden(const fs::path& folder, const BaseStorage& storage = {}) {
    return load_model(folder, storage)->hidden(data::pack_ids(testing::kSequences), {});
  }

  const testing::TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
};

INSTANTIATE_TEST_SUITE_P(Sparse, ExpertLayouts,
                         ::testing::Values("olmoe", "flex_olmo", "qwen2_moe", "qwen3_moe", "mixtral", "granitemoe",
                                           "deepseek_v2", "deepseek_v3", "glm4_moe"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ExpertLayouts, BothLayoutsGiveTheSameModel) {
  const auto expected = hidden(written(ExpertLayout::kOriginal));
  EXPECT_TRUE(at::equal(hidden(written(ExpertLayout::kFused)), expected));
  EXPECT_TRUE(at::equal(hidden(written(ExpertLayout::kFused, 900)), expected)) << "in shards";
}

TEST_P(ExpertLayouts, ExpertsOfAFusedTensorAreViewsOfIt) {
  const auto model = load_model(written(ExpertLayout::kFused));
  const auto weights = model->parameters();
  for (const auto& [name, site] : model->all_sites()) {
    const auto& first = weights.at(site.modules.front() + ".weight");
    for (const auto& module : site.modules) EXPECT_TRUE(weights.at(module + ".weight").is_alias_of(first)) << name;
  }
}

TEST_P(ExpertLayouts, BothLayoutsGiveTheSameInt8Base) {
  const auto int8 = [&](const fs::path& folder, const fs::path& cache) {
    BaseStorage storage;
    storage.format = BaseFormat::kInt8;
    storage.cache = cache;
    return hidden(folder, storage);
  };
  const auto original = written(ExpertLayout::kOriginal), fused = written(ExpertLayout::kFused);
  const auto expected = int8(original, {});
  EXPECT_TRUE(at::equal(int8(fused, {}), expected));
  EXPECT_TRUE(at::equal(int8(fused, root_ / "cache"), expected)) << "written";
  EXPECT_TRUE(at::equal(int8(fused, root_ / "cache"), expected)) << "read";
}

TEST_P(ExpertLayouts, SavingWritesTheOriginalLayout) {
  const auto original = written(ExpertLayout::kOriginal);
  save_model(*load_model(written(ExpertLayout::kFused)), root_ / "saved");
  EXPECT_EQ(read_file(root_ / "saved/model.safetensors"), read_file(original / "model.safetensors"));
}

TEST(ExpertLayout, GraniteIsFusedInEitherLayout) {
  const auto sites = testing::make_model("granitemoe", BaseDtype::kFloat32)->all_sites();
  const auto original = fused_tensors(sites, ExpertLayout::kOriginal),
             fused = fused_tensors(sites, ExpertLayout::kFused);
  EXPECT_EQ(original.at("model.layers.1.block_sparse_moe.input_linear.weight").sizes,
            std::vector<int64_t>({6, 14, 12}));
  EXPECT_EQ(fused.at("model.layers.1.block_sparse_moe.experts.gate_up_proj").sizes, std::vector<int64_t>({6, 14, 12}));
  EXPECT_EQ(fused.at("model.layers.1.block_sparse_moe.router.weight").sizes, std::vector<int64_t>({6, 12}));
  EXPECT_EQ(original.size(), 4u);
  EXPECT_EQ(fused.size(), 6u);
}

TEST(ExpertLayout, DenseModelsHaveNoFusedTensors) {
  const auto sites = testing::make_model("olmo", BaseDtype::kFloat32)->all_sites();
  EXPECT_TRUE(fused_tensors(sites, ExpertLayout::kFused).empty());
}

}  // namespace
}  // namespace evenkeel::models
