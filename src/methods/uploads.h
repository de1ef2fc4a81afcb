/// \file  What a server gets to see of a round's uploads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lora/payload.h"
#include "methods/profile.h"

namespace evenkeel {

/// One client's contribution. Tensors may be views of a journalled file: read them site by site.
struct ClientUpdate {
  ClientProfile client;
  Payload payload;
  int64_t steps = 0;  ///< optimiser steps done

  /// Its factors of one site, float32 (or wider). \throws kShape when it did not send the site.
  LoraFactors factors(const std::string& site) const;
  /// \throws kShape when it did not send the tensor.
  const at::Tensor& extra(const std::string& name) const;
};

/// The uploads of a round, behind two doors. Sums of what each client could compute of its own upload are all that most
/// methods need: a secure sum, or one shaped as a tree, could answer them. each() shows them one by one; a method whose
/// row does not say that it needs that (MethodEntry::needs_individuals) finds it locked. Borrows the updates; weights
/// are p_c, in the same order.
class Uploads {
 public:
  /// \param one_by_one  whether each() opens
  explicit Uploads(std::span<const ClientUpdate> updates, bool one_by_one) : updates_(updates), open_(one_by_one) {}
  /// Both doors open. Implicit: whoever has the updates of all clients has their uploads.
  Uploads(const std::vector<ClientUpdate>& updates) : Uploads(updates, true) {}  // NOLINT(google-explicit-constructor)

  size_t size() const { return updates_.size(); }

  /// sum_c p_c theta_c of one factor of one site, in float64, in the factor's own type. Source: FedAvg (McMahan et al.
  /// 2017).
  at::Tensor mean(const std::string& site, at::Tensor LoraFactors::*factor, std::span<const double> weights) const;
  /// The same of an extra.
  at::Tensor mean(const std::string& extra, std::span<const double> weights) const;
  /// sum_c part(upload_c, p_c), added in the order of the clients; parts that are undefined are left out.
  at::Tensor sum(std::span<const double> weights,
                 const std::function<at::Tensor(const ClientUpdate& update, double weight)>& part) const;

  /// \throws kInternal where this door is locked.
  std::span<const ClientUpdate> each() const;

 private:
  std::span<const ClientUpdate> updates_;
  bool open_;
};

}  // namespace evenkeel
