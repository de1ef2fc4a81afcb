#include "host/check_setup.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/plain/error.h"

namespace evenkeel::host {
namespace {

using methods::LocalSetup, methods::Trainable;

const std::string kSite = "model.layers.0.self_attn.q_proj";

LocalSetup setup() {
  LocalSetup made;
  made.adapters[kSite] = {.a = at::ones({2, 3}), .b = at::ones({5, 2})};
  return made;
}

/// Returns the message of the refused setup; empty if it is allowed.
std::string refused(const LocalSetup& made, bool trains = true) {
  try {
    check_setup(made, trains, "hook prepare of client 3");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kConfig);
    return error.message();
  }
  return {};
}

TEST(CheckSetup, WhatAModelCannotComputeWithIsNamed) {
  const std::vector<std::pair<std::function<void(LocalSetup&)>, std::string>> mistakes{
      {[](auto& made) { made.adapters[kSite].a.reset(); }, kSite + ".a is None, allowed: arrays as a and b"},
      {[](auto& made) { made.adapters[kSite].b.reset(); }, kSite + ".b is None"},
      {[](auto& made) { made.trainable = Trainable::kCore; },
       kSite + ".core is None, allowed: arrays as a, b and core"},
      {[](auto& made) { made.extra_trainables["t"] = at::ones({3}, at::kLong); },
       "extra_trainables.t is Long, allowed: float32, float64"},
      {[](auto& made) { made.extra_trainables["t"] = at::ones({3}, at::kHalf); }, "extra_trainables.t is Half"},
      {[](auto& made) { made.adapters.clear(); }, "adapters is empty, allowed: one site or more"}};
  for (const auto& [make, text] : mistakes) {
    auto made = setup();
    make(made);
    EXPECT_NE(refused(made).find(text), std::string::npos) << text << " in: " << refused(made);
    EXPECT_EQ(refused(made).rfind("hook prepare of client 3: ", 0), 0U);
  }
}

TEST(CheckSetup, TrainedTensorsOfTheRouterNeedNoAdapter) {
  LocalSetup made;
  const auto phi = at::zeros({7}, at::kDouble);
  made.extra_trainables["phi"] = phi;
  EXPECT_NE(refused(made), "");
  made.router.modulation["model.layers.0.mlp"] = phi;
  EXPECT_NE(refused(made), "") << "no expert gets phi";
  made.router.num_candidates = 4;
  EXPECT_EQ(refused(made), "");
}

TEST(CheckSetup, AnEvaluationNeedsNeitherAdapterNorCore) {
  EXPECT_EQ(refused(LocalSetup(), false), "");
  auto made = setup();
  made.trainable = Trainable::kCore;
  EXPECT_EQ(refused(made, false), "");
  EXPECT_EQ(refused(setup()), "");
}

}  // namespace
}  // namespace evenkeel::host
