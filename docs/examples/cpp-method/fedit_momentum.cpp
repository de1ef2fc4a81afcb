// FedIT with server momentum: FedAvgM on the LoRA factors. Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data
// Distribution for Federated Visual Classification", 2019, arXiv:1909.06335.
//
//   client   as FedIT
//   server   Theta' = sum_c p_c Theta_c + momentum V,   V' = Theta' - Theta
#include <ATen/ATen.h>

#include <cmath>

#include "methods/method_registry.h"

namespace evenkeel::methods {
namespace {

struct Config {
  double momentum = 0.9;
  void visit(auto& field) { field("momentum", momentum, "share of the server's last move it repeats, 0 .. 1"); }
  void resolve(const config::Table& table) const {
    table.check(momentum >= 0 && momentum <= 1, "momentum", momentum, "0 .. 1");
  }
};

class FedItMomentum : public FederatedMethod {
 public:
  explicit FedItMomentum(const Config& config) : config_(config) {}

  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const override {
    auto next = FederatedMethod::aggregate(server, state, round, uploads);
    for (auto& [site, factors] : next.global.adapters) {
      const auto& old = state.global.adapters.at(site);
      repeat_move(site + ".velocity_a", old.a, factors.a, next.memory);
      repeat_move(site + ".velocity_b", old.b, factors.b, next.memory);
    }
    return next;
  }

  /// `velocity_norm`: of the server's last move, all factors together.
  TensorMap diagnostics(const ServerState& state) const override {
    double squares = 0;
    for (const auto& [name, velocity] : state.memory) squares += velocity.square().sum(at::kDouble).item<double>();
    return {{"velocity_norm", at::scalar_tensor(std::sqrt(squares), at::kDouble)}};
  }

 private:
  /// theta += momentum V, and V becomes the whole move.
  void repeat_move(const std::string& name, const at::Tensor& old, at::Tensor& theta, TensorMap& memory) const {
    auto& velocity = memory[name];
    if (velocity.defined()) theta = theta + config_.momentum * velocity;
    velocity = theta - old;
  }

  const Config config_;
};

}  // namespace

MethodEntry fedit_momentum() {
  return method_entry<FedItMomentum, Config>(
      {.name = "fedit-momentum",
       .title = "FedIT with server momentum",
       .paper = "FedAvgM of Hsu, Qi, Brown 2019, arXiv:1909.06335, on LoRA factors",
       .family = MethodFamily::kHomogeneous,
       .exact = false,
       .needs_experts = false});
}

}  // namespace evenkeel::methods
