#include "fed/store/state_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "base/testing.h"

namespace evenkeel::fed {
namespace {

const std::string kExperts = "model.layers.0.mlp.experts.up_proj", kDense = "model.layers.0.self_attn.q_proj";

class StateFile : public ::testing::Test {
 protected:
  StateFile() {
    state_.global.adapters[kExperts] = {at::ones({5, 3, 7}), at::ones({5, 11, 3}), {}, 0.3};
    state_.global.adapters[kDense] = {at::ones({3, 7}), at::ones({13, 3}), {}, 0.3};
    state_.global.extras["phi"] = at::ones({5});
  }
  std::string refusal_of_load(const TensorMap& tensors) const {
    save_safetensors(file_, tensors);
    return refusal([&] { load_state(file_, 1); });
  }
  std::string refusal_of_check() const {
    return refusal([&] { check_state(state_, sites_, "state"); });
  }
  template <typename Use>
  static std::string refusal(Use&& use) {
    try {
      use();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const testing::TemporaryFolder temporary_;
  const std::filesystem::path file_ = temporary_.path() / "state.safetensors";
  const lora::Sites sites_ = {{kExperts, {.experts = 5, .in = 7, .out = 11, .moe_layer = "model.layers.0.mlp"}},
                              {kDense, {.experts = 0, .in = 7, .out = 13, .moe_layer = ""}}};
  methods::ServerState state_;
};

TEST_F(StateFile, NonFiniteValuesAreReportedByTensor) {
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    state_.global.adapters[kDense].b[12][2] = value;
    save_state(file_, state_);
    const auto text = refusal([&] { load_state(file_, 1); });
    EXPECT_NE(text.find("[numeric] " + file_.string() + ": tensor adapter/" + kDense + "/b holds"), std::string::npos)
        << text;
  }
  save_memories(file_, {{7, {{"norm", at::full({2}, NAN)}}}});
  EXPECT_NE(refusal([&] { load_memories(file_); }).find("tensor 7/norm holds"), std::string::npos);
}

TEST_F(StateFile, AnUnknownTensorIsRefused) {
  for (const auto* name : {"adapter/s/c", "adapter/a", "stranger", "adapter", "a"})
    EXPECT_NE(refusal_of_load({{name, at::ones({2})}}).find(concat("unexpected tensor ", name)), std::string::npos)
        << name;
  EXPECT_NE(refusal_of_load({{"adapter/s/scaling", at::ones({2}, at::kDouble)}}).find("adapter/s/scaling of shape [2]"),
            std::string::npos);
  EXPECT_EQ(refusal_of_load({{"adapter/s/scaling", at::ones({}, at::kDouble)}}), "no error");
  for (const auto* name : {"norm", "x/norm", "-1/norm", "7"}) {
    save_safetensors(file_, {{name, at::ones({2})}});
    EXPECT_NE(refusal([&] { load_memories(file_); }).find(concat("unexpected tensor ", name)), std::string::npos)
        << name;
  }
}

TEST_F(StateFile, EverySiteMustHaveItsFactors) {
  EXPECT_EQ(refusal_of_check(), "no error");
  state_.common.fixed[kDense].b = std::exchange(state_.global.adapters[kDense].b, {});
  EXPECT_EQ(refusal_of_check(), "no error");
  state_.common.fixed.clear();
  EXPECT_NE(refusal_of_check().find("state: the factors of site " + kDense + " are missing"), std::string::npos);
  state_.global.adapters.erase(kDense);
  EXPECT_NE(refusal_of_check().find("the factors of site " + kDense + " are missing"), std::string::npos);
  state_.common.base_change[kDense] = {at::ones({3, 7}), at::ones({13, 3}), {}, 1.0};
  EXPECT_EQ(refusal_of_check(), "no error");
  state_.global.adapters["other"] = {at::ones({3, 7}), at::ones({13, 3}), {}, 1.0};
  EXPECT_NE(refusal_of_check().find("the model has no site other"), std::string::npos);
}

TEST_F(StateFile, SitesThatAreAsInTheBaseAreStoredAsSuch) {
  state_.global.adapters.erase(kDense);
  EXPECT_EQ(unadapted_sites(state_, sites_), std::set<std::string>{kDense});
  EXPECT_NE(refusal_of_check().find("the factors of site " + kDense + " are missing"), std::string::npos);
  state_.unadapted = unadapted_sites(state_, sites_);
  save_state(file_, state_);
  state_ = load_state(file_, 1);
  EXPECT_EQ(state_.unadapted, std::set<std::string>{kDense});
  EXPECT_EQ(refusal_of_check(), "no error");
  state_.global.adapters[kDense] = {at::ones({3, 7}), {}, {}, 1.0};
  EXPECT_NE(refusal_of_check().find("the factors of site " + kDense + " are missing"), std::string::npos);
  state_.global.adapters.erase(kDense);
  state_.unadapted.insert("other");
  EXPECT_NE(refusal_of_check().find("the model has no site other"), std::string::npos);
  state_.unadapted = {};
  state_.common.base_change[kDense] = {at::ones({3, 7}), at::ones({13, 3}), {}, 1.0};
  EXPECT_TRUE(unadapted_sites(state_, sites_).empty());
}

TEST_F(StateFile, FactorsOfAnotherShapeAreRefused) {
  const auto with = [&](const std::string& site, at::Tensor a, at::Tensor b) {
    const auto before = state_.global.adapters[site];
    state_.global.adapters[site] = {std::move(a), std::move(b), {}, 1.0};
    const auto text = refusal_of_check();
    state_.global.adapters[site] = before;
    return text.find(" of site " + site + " has shape [") != std::string::npos;
  };
  EXPECT_TRUE(with(kDense, at::ones({7, 3}), at::ones({13, 3})));          // transposed
  EXPECT_TRUE(with(kDense, at::ones({3, 7}), at::ones({13, 2})));          // different ranks
  EXPECT_TRUE(with(kDense, at::ones({5, 3, 7}), at::ones({5, 13, 3})));    // stacked
  EXPECT_TRUE(with(kExperts, at::ones({4, 3, 7}), at::ones({4, 11, 3})));  // too few experts
  EXPECT_TRUE(with(kExperts, at::ones({3, 7}), at::ones({11, 3})));
}

}  // namespace
}  // namespace evenkeel::fed
