/// \file  Runs a method's server and clients on numbers small enough for hand computation: one site, a few clients, no
/// model.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "methods/method.h"

namespace evenkeel {

using Rows = std::vector<std::vector<double>>;
at::Tensor matrix(const Rows& rows, at::ScalarType type = at::ScalarType::Float);

/// Fails with both tensors in the message unless the shapes are equal and every entry is within `tolerance`.
void expect_near(const at::Tensor& actual, const Rows& expected, double tolerance = 1e-6);
void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance = 1e-6);
/// Fails unless `actual` equals `right`. Also fails if `mistaken`, the result of a likely mistake, is within a thousand
/// tolerances of `right`: the test could then not tell them apart.
void expect_not_mistaken(const at::Tensor& actual, const at::Tensor& right, const at::Tensor& mistaken,
                         double tolerance = 1e-6);

/// Returns updates of rank 1, B1 A1 = (1, 0)^T (1, 2) and B2 A2 = (0, 1)^T (3, -1), and their mean.
lora::LoraFactors first_update();
lora::LoraFactors second_update();
inline const Rows kMeanUpdate{{.5, 1}, {1.5, -.5}};

/// A server and one client per weight. All clients have one rank, by default rank 1 and scale 1.
struct OneSite {
  explicit OneSite(const std::string& name, const std::string& toml = "");

  methods::ServerView server() const;
  methods::ClientView view(const methods::ClientProfile& client, const methods::Common& common);
  methods::RoundView round() const;
  methods::ClientProfile client(int64_t id) const { return {.id = id, .rank = rank, .examples = 1}; }

  /// Returns the state after `state` (by default the initial state) when the clients sent these factors.
  methods::ServerState aggregate(const std::vector<lora::LoraFactors>& sent) const;
  methods::ServerState aggregate(const methods::ServerState& state, const std::vector<lora::LoraFactors>& sent) const;
  /// Returns the factors that a client would train next.
  lora::LoraFactors prepared(const methods::ServerState& state, const methods::ClientProfile& client);

  std::unique_ptr<methods::FederatedMethod> method;
  lora::Sites sites;
  std::vector<double> weights{.5, .5};
  int64_t rank = 1;
  double alpha = 1;
  lora::LoraScaleMode scale_mode = lora::LoraScaleMode::kFixedAlpha;
  methods::GradientSum gradient_sum;
  TensorMap memory;
};

inline const std::string kSite = "model.layers.0.self_attn.q_proj", kLayer = "model.layers.0.mlp";

}  // namespace evenkeel
