#include "fed/run/product_speed.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/plain/error.h"

namespace evenkeel::fed {
namespace {

TEST(ProductSpeed, WhatSlowsMostCallsDownDoesNotCount) {
  int calls = 0;
  const double seconds = least_seconds([&] {
    if (++calls % 3 != 0) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  });
  EXPECT_GE(calls, 5);
  EXPECT_LT(seconds, 0.2);
}

TEST(ProductSpeed, TheThreadsOfTheRunComputeAndThoseOfThePoolAreRestored) {
  const int before = at::get_num_threads();
  ExperimentConfig config;
  config.threads = before + 1;
  config.model.compute_dtype = ComputeDtype::kFloat32;
  EXPECT_GT(product_speed(config), 1e8);
  EXPECT_EQ(at::get_num_threads(), before);
}

/// "auto" may choose each kernel, float32 among them; other work on the machine slows both down.
TEST(ProductSpeed, AutoIsTheFastestKernelOrEngineOfTheRun) {
  ModelSection model;
  auto float32 = model;
  float32.compute_dtype = ComputeDtype::kFloat32;
  double ratio = 0;
  for (int i = 0; i < 10 && ratio < 0.5; ++i)  // other work may begin between the two measurements
    ratio = product_speed(model, 1) / product_speed(float32, 1);
  EXPECT_GE(ratio, 0.5);
  model.compute_dtype = ComputeDtype::kFloat32;
  model.engine = EngineChoice::kAten;
  EXPECT_GT(product_speed(model, 1), 1e8);
}

TEST(ProductSpeed, ADeviceThatIsNotHereIsRefused) {
  ModelSection model;
  model.device = "cuda:77";
  EXPECT_THROW(product_speed(model, 1), Error);
}

}  // namespace
}  // namespace evenkeel::fed
