#include "models/quantized_base.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "base/testing.h"
#include "models/testing.h"

namespace evenkeel::models {
namespace {

using testing::kSequences;

class QuantizedBase : public ::testing::Test {
 protected:
  void SetUp() override { save("model", 1); }

  void save(const std::string& name, uint64_t seed) {
    save_model(*testing::random_model(seed, 67, BaseDtype::kBFloat16), folder_.path() / name);
  }
  std::unique_ptr<CausalLm> load(const std::string& name = "model", const std::string& cache = "cache") const {
    BaseStorage storage;
    storage.format = BaseFormat::kInt8;
    if (!cache.empty()) storage.cache = folder_.path() / cache;
    return load_model(folder_.path() / name, storage);
  }
  std::vector<fs::path> cached() const {
    auto files = entries_of(folder_.path() / "cache");
    std::erase_if(files, [](const auto& file) { return file.extension() != ".safetensors"; });
    return files;
  }
  static at::Tensor hidden(const CausalLm& model) {
    const c10::NoGradGuard no_grad;
    return model.hidden(data::pack_ids(testing::kSequences), {});
  }

  testing::TemporaryFolder folder_;
};

TEST_F(QuantizedBase, QuantisesLinearsExpertsAndHeadOnly) {
  const auto model = load();
  for (const auto& [name, tensor] : model->parameters()) {
    const bool is_exact =
        name.find("norm") != name.npos || name.find("embed") != name.npos || name.find("mlp.gate.") != name.npos;
    const auto type = name.ends_with(".scales") ? at::kFloat : is_exact ? at::kBFloat16 : at::kChar;
    EXPECT_EQ(tensor.scalar_type(), type) << name;
  }
  EXPECT_EQ(model->head().values_OI.scalar_type(), at::kChar);
}

TEST_F(QuantizedBase, IsCloseToTheCheckpointAndEqualFromFileAndInMemory) {
  const auto exact = hidden(*load_model(folder_.path() / "model")), mapped = hidden(*load());
  EXPECT_TRUE(at::equal(mapped, hidden(*load("model", ""))));
  const double apart = ((mapped - exact).norm() / exact.norm()).item<double>();
  EXPECT_GT(apart, 0);
  EXPECT_LT(apart, 0.05);
}

TEST_F(QuantizedBase, IsWrittenOnce) {
  const auto first = hidden(*load());
  ASSERT_EQ(cached().size(), 1u);
  const auto made = fs::last_write_time(cached()[0]);
  EXPECT_TRUE(at::equal(hidden(*load()), first));
  EXPECT_EQ(fs::last_write_time(cached()[0]), made);
}

TEST_F(QuantizedBase, DependsOnTheCheckpoint) {
  const auto first = hidden(*load());
  save("other", 2);
  EXPECT_FALSE(at::equal(hidden(*load("other")), first));
  EXPECT_EQ(cached().size(), 2u);
}

TEST_F(QuantizedBase, DoesNotDependOnFilesThatAreNotLoaded) {
  load();
  const auto folder = folder_.path() / "model";
  fs::copy_file(folder / "model.safetensors", folder / "consolidated.safetensors");
  load();
  EXPECT_EQ(cached().size(), 1u);
}

TEST_F(QuantizedBase, ADamagedFileIsWrittenAgain) {
  const auto first = hidden(*load());
  const auto file = cached().at(0);
  auto bytes = read_file(file);
  const auto whole = bytes;
  bytes[bytes.size() - 5] ^= 1;
  write_file_atomic(file, bytes);
  EXPECT_TRUE(at::equal(hidden(*load()), first));
  EXPECT_EQ(read_file(file), whole);
  remove_path(fs::path(file).replace_extension(".json"));  // a file without a checksum
  EXPECT_TRUE(at::equal(hidden(*load()), first));
}

TEST_F(QuantizedBase, AValueBeyondFloat32IsRefusedByName) {
  const auto file = folder_.path() / "model/model.safetensors";
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  TensorMap tensors;
  for (const auto& [own, tensor] : load_safetensors(file).tensors) tensors[own] = tensor.clone();
  tensors[name] = tensors[name].to(at::kDouble);
  load("model", "");
  tensors[name][2][3] = 1e39;
  save_safetensors(file, tensors);
  for (const auto* cache : {"", "cache"}) {
    const auto said = testing::refusal([&] { load("model", cache); });
    EXPECT_NE(said.find(concat("tensor ", name, " does not fit int8: its largest value is 1e+39")), std::string::npos)
        << said;
  }
}

TEST_F(QuantizedBase, ShapesHaveTheBytesOfTheTensors) {
  BaseStorage storage;
  storage.format = BaseFormat::kInt8;
  const auto shape = load_shape(folder_.path() / "model", storage)->parameters(), real = load()->parameters();
  ASSERT_EQ(shape.size(), real.size());
  for (const auto& [name, tensor] : real) {
    const bool quantised = tensor.scalar_type() != at::kBFloat16;
    EXPECT_TRUE(!quantised || tensor.nbytes() == shape.at(name).nbytes()) << name;
  }
}

}  // namespace
}  // namespace evenkeel::models
