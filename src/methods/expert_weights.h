/// \file  Averages stacks of experts with a weight for each expert of each client, for methods whose clients report how
/// much they used an expert. Dimension name: E experts.
#pragma once

#include <functional>
#include <string>

#include "methods/method.h"

namespace evenkeel::methods {

/// Returns a client's weights of the experts of a layer, before division by the sum over clients: [E] float64, 0 or
/// more. The argument `weight` is the client's p_c.
using ExpertWeights = std::function<at::Tensor(const std::string& layer, const ClientUpdate& update, double weight)>;

/// Says what becomes of an expert whose weight is 0 on every client: its factors do not change (kKeep), or they become
/// sum_c p_c Theta_c (kMean). With hidden uploads they never change.
enum class UnusedExpert { kKeep, kMean };
constexpr auto names(UnusedExpert) {
  return std::array{config::EnumName{"keep", UnusedExpert::kKeep}, config::EnumName{"mean", UnusedExpert::kMean}};
}

/// Returns the state with new factors: Theta_i = sum_c w_ci Theta_ci for each expert i, where the weights w_ci are
/// divided by their sum over clients, and sum_c p_c Theta_c for all other factors.
/// \param sum_name  returns the name of the sum of a layer's weights; read if uploads are hidden
/// (FederatedMethod::summands())
ServerState weighted_by_expert(const ServerView& server, const ServerState& state, const RoundView& round,
                               const Uploads& uploads, const ExpertWeights& weights, UnusedExpert unused,
                               std::string (*sum_name)(const std::string& layer));

}  // namespace evenkeel::methods
