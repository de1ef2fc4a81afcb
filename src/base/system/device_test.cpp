#include "base/system/device.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

#include "base/plain/error.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

std::string refused_device(std::string_view name) {
  try {
    find_device(name, "model.device");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 1);
    return error.what();
  }
  return "";
}

StorageCopies cloning() {
  return StorageCopies([](const at::Tensor& bytes_N) { return bytes_N.clone(); });
}

bool share_memory(const at::Tensor& x, const at::Tensor& y) { return x.storage().is_alias_of(y.storage()); }

TEST(Device, ParsesTheDeviceNamesOfConfigs) {
  for (const auto* good : {"cpu", "auto", "cuda", "cuda:0", "cuda:7"}) EXPECT_TRUE(names_compute_device(good)) << good;
  for (const auto* bad : {"", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:x", "cuda:1 ", "cuda:64", "cpu:0", "mps"})
    EXPECT_FALSE(names_compute_device(bad)) << bad;
  EXPECT_FALSE(names_gpu("auto"));
  EXPECT_TRUE(names_gpu("cuda:1"));
}

TEST(Device, RejectsOtherNamesWithKeyAndValue) {
  EXPECT_EQ(refused_device("gpu"), "[config] model.device is \"gpu\", allowed: cpu, cuda, cuda:0 and so on, auto");
  EXPECT_EQ(find_device("cpu", "model.device"), c10::Device(c10::kCPU));
}

TEST(Device, WithoutAGpuAutoIsTheCpuAndCudaIsAnError) {
  if (!find_device("auto", "model.device").is_cpu()) GTEST_SKIP() << "there is a GPU";
  for (const auto* name : {"cuda", "cuda:0", "cuda:3"}) {
    const auto text = refused_device(name);
    EXPECT_TRUE(text.starts_with(concat("[config] model.device is ", name, ", but this "))) << text;
    EXPECT_EQ(text.find('\n'), text.npos);
  }
}

TEST(Device, TheCpuHasNoDescriptionAndNoSynchronisation) {
  const c10::Device cpu = c10::kCPU;
  settle_device(cpu);
  synchronize(cpu);
  reset_peak(cpu);
  EXPECT_EQ(device_memory(cpu).total, 0);
  EXPECT_EQ(device_identity(cpu).name, "");
  EXPECT_EQ(device_text(cpu), "cpu");
}

TEST(Device, DeterministicProductsAreSetInTheEnvironment) {
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
  settle_device_environment();
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
}

TEST(Device, OutOfMemoryIsOneLineWithoutAStackTrace) {
  const c10::OutOfMemoryError full({__func__, __FILE__, 1},
                                   "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of "
                                   "79.1 GiB of which 1 GiB is free.");
  const auto text = device_memory_message(full);
  EXPECT_TRUE(text.starts_with("the device's memory is full: CUDA out of memory. Tried to allocate 20.00 GiB;"))
      << text;
  EXPECT_EQ(text.find('\n'), text.npos);
  EXPECT_FALSE(device_memory_message(std::runtime_error("CUDA error: out of memory\nmore")).empty());
  EXPECT_TRUE(device_memory_message(std::runtime_error("DefaultCPUAllocator: can't allocate memory")).empty());
}

TEST(StorageCopies, TensorsThatShareMemoryShareItInTheCopy) {
  const auto phi = at::arange(12, at::kFloat), part = phi.narrow(0, 3, 4), turned = phi.view({3, 4}).t();
  auto copy = cloning();
  const auto phi_there = copy(phi), part_there = copy(part), turned_there = copy(turned);
  EXPECT_FALSE(share_memory(phi, phi_there));
  EXPECT_TRUE(share_memory(phi_there, part_there));
  EXPECT_TRUE(share_memory(phi_there, turned_there));
  EXPECT_EQ(turned_there.strides(), turned.strides());
  part_there.fill_(-1);
  EXPECT_TRUE(at::equal(phi_there.narrow(0, 3, 4), part_there));
  EXPECT_EQ(turned_there[3][0].item<float>(), -1);
  EXPECT_EQ(phi[3].item<float>(), 3);
}

/// A router refers to the trained phi, so the copy must have one tensor for both: its gradient goes to one tensor.
TEST(StorageCopies, OneTensorIsCopiedOnce) {
  const auto phi = at::randn({4}), other = phi.narrow(0, 0, 2);
  auto copy = cloning();
  EXPECT_TRUE(copy(phi).is_same(copy(phi)));
  EXPECT_FALSE(copy(phi).is_same(copy(other)));
}

TEST(StorageCopies, KeepsTypesSizesAndUndefinedTensors) {
  auto copy = cloning();
  EXPECT_FALSE(copy(at::Tensor()).defined());
  for (const auto& tensor : {at::randn({2, 3, 4}), at::ones({5}, at::kLong), at::scalar_tensor(2.5, at::kDouble),
                             at::empty({0, 3}), at::randn({4, 6}).to(at::kBFloat16).narrow(1, 2, 3)}) {
    const auto there = copy(tensor);
    EXPECT_TRUE(at::equal(there, tensor));
    EXPECT_EQ(there.scalar_type(), tensor.scalar_type());
    EXPECT_EQ(there.strides(), tensor.strides());
  }
  EXPECT_FALSE(copy(at::ones({2}).requires_grad_(true)).requires_grad());
}

TEST(StorageCopies, SeveralTypesInOneStorageAreCopiedOnce) {
  const auto bytes_N = at::arange(64, at::kByte);
  const auto numbers = bytes_N.narrow(0, 16, 32).view(at::kFloat), others = bytes_N.narrow(0, 16, 32).view(at::kLong);
  auto copy = cloning();
  const auto numbers_there = copy(numbers), others_there = copy(others);
  EXPECT_TRUE(share_memory(numbers_there, others_there));
  EXPECT_TRUE(at::equal(others_there, others));
  EXPECT_EQ(numbers_there.storage_offset(), numbers.storage_offset());
}

/// A client's copies start with the shared state of all clients.
TEST(StorageCopies, KnownTensorsAreNotCopiedAgain) {
  int64_t copied = 0;
  StorageCopies common([&](const at::Tensor& bytes_N) {
    ++copied;
    return bytes_N.clone();
  });
  const auto fixed = at::randn({6}), own = at::randn({3});
  const auto fixed_there = common(fixed);
  auto of_client = common;
  EXPECT_TRUE(share_memory(of_client(fixed), fixed_there));
  of_client(own);
  EXPECT_EQ(copied, 2);
  common(own);  // tensors of one client are not shared
  EXPECT_EQ(copied, 3);
}

TEST(StorageCopies, AFailedCopyIsMadeAgain) {
  bool is_full = true;
  StorageCopies copy([&](const at::Tensor& bytes_N) {
    EK_CHECK(!is_full, kInternal, "no memory");
    return bytes_N.clone();
  });
  const auto tensor = at::randn({5});
  EXPECT_EQ(testing::refusal([&] { copy(tensor); }), "[internal] no memory");
  is_full = false;
  EXPECT_TRUE(at::equal(copy(tensor), tensor));
}

/// Without ownership, a freed address could be reused by another tensor.
TEST(StorageCopies, KeepsItsSourcesAlive) {
  auto copy = cloning();
  for (int i = 0; i < 20; ++i) {
    const auto tensor = at::full({1000}, i, at::kFloat);
    EXPECT_EQ(copy(tensor)[0].item<float>(), static_cast<float>(i));
  }
}

TEST(StorageCopies, CopyingToTheSameDeviceReturnsTheTensors) {
  auto copy = StorageCopies::to(c10::kCPU);
  const auto tensor = at::randn({4});
  EXPECT_TRUE(share_memory(copy(tensor), tensor));
}

}  // namespace
}  // namespace evenkeel
