/// \file  Asks clients for the sums of gradients that a method begins with (Fed-SB).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fed/round/server.h"

namespace evenkeel::fed {

/// Returns the bytes in memory during the largest request for gradients: five times the gradients of its sites (in the
/// pass, in the reply and in the sum) and an identity matrix of each site, which train::weight_gradients() multiplies
/// by.
int64_t starting_gradient_bytes(const lora::Sites& sites);

/// Gathers sums of gradients over rows of all clients before round 1. Gradients of one layer's sites are requested
/// together. A client that fails is not asked again. A client whose gradients have a norm above clients.update_ratio
/// times the median norm is left out, and the sum is made again without it. This bound applies if
/// Server::bounds_updates() is true and at least three clients replied, of which one is a minority. Borrows its
/// arguments.
class StartingGradients {
 public:
  /// \param bytes_up  grows by the bytes that clients send
  StartingGradients(const Server& server, Fabric& fabric, int64_t& bytes_up)
      : server_(server), fabric_(fabric), bytes_up_(bytes_up) {}

  /// Returns the sum of a site's gradients over `sample`. \throws kData when no row was drawn, and when fewer clients
  /// than clients.quorum are left
  at::Tensor operator()(const std::string& site, const methods::GradientSample& sample);

 private:
  TensorMap sums(const SumGradients& ask);
  TensorMap sums_of(const std::vector<methods::ClientProfile>& asked, const SumGradients& ask);
  std::vector<methods::ClientProfile> asked(const methods::GradientSample& sample) const;
  std::set<int64_t> too_large() const;
  void require_quorum() const;
  void leave_out(int64_t client, const std::string& why);

  const Server& server_;
  Fabric& fabric_;
  int64_t& bytes_up_;
  methods::GradientSample sample_{};
  TensorMap known_{};                  ///< sums that were requested together with the sum of another site
  std::set<int64_t> left_out_{};       ///< clients
  std::map<int64_t, double> norms_{};  ///< of each client's gradients in the last request
};

}  // namespace evenkeel::fed
