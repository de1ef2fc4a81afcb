#include "models/weight_files.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/format/safetensors.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"
#include "models/causal_lm.h"

namespace evenkeel::models {
namespace {

class WeightFiles : public ::testing::Test {
 protected:
  int64_t write(const std::string& name, int64_t values) const {
    save_safetensors(folder_ / name, {{name, at::ones({values, 3})}});
    return static_cast<int64_t>(evenkeel::file_size(folder_ / name));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& file : weight_files(folder_)) names.push_back(file.lexically_relative(folder_));
    return names;
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(WeightFiles, AreTheShardsOfTheIndexAndNothingBesideThem) {
  write("consolidated.safetensors", 50);
  write("adapter_model.safetensors", 7);
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(weight_file_bytes(folder_), 0);
  const int64_t bytes = write("b.safetensors", 20) + write("a.safetensors", 30);
  write_file_atomic(folder_ / kWeightIndex,
                    R"({"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}})");
  EXPECT_EQ(names(), (std::vector<std::string>{"a.safetensors", "b.safetensors"}));
  EXPECT_EQ(weight_file_bytes(folder_), bytes);
  remove_path(folder_ / "a.safetensors");
  EXPECT_EQ(names(), std::vector<std::string>{"b.safetensors"}) << "loading names the one that is missing";
}

TEST_F(WeightFiles, AreTheSingleFileIfThereIsOne) {
  write("b.safetensors", 20);
  write_file_atomic(folder_ / kWeightIndex, R"({"weight_map": {"x": "b.safetensors"}})");
  const int64_t bytes = write("model.safetensors", 40);
  EXPECT_EQ(names(), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(weight_file_bytes(folder_), bytes);
}

TEST_F(WeightFiles, OfAMalformedIndexAreRefused) {
  write_file_atomic(folder_ / kWeightIndex, R"({"weight_map": {"x": "../b.safetensors"}})");
  const auto said = testing::refusal([&] { weight_files(folder_); });
  EXPECT_NE(said.find("weight_map.x is \"../b.safetensors\", allowed: the name of a file in the same folder"),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace evenkeel::models
