/// \file  What a server gets to see of a round's uploads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/fixed_point.h"
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
  /// The same as it was sent.
  const LoraFactors& sent(const std::string& site) const;
  /// One of them. \throws kShape when it did not send that one.
  const at::Tensor& sent(const std::string& site, at::Tensor LoraFactors::*factor) const;
  /// \throws kShape when it did not send the tensor.
  const at::Tensor& extra(const std::string& name) const;
};

/// The factors of each site as all clients sent them, in their order: views. \throws kShape as ClientUpdate::sent().
std::map<std::string, std::vector<LoraFactors>> parts_of(const Sites& sites, std::span<const ClientUpdate> updates);

/// Where some of a round's uploads stand among all of them, and who holds the rest.
struct UploadShare {
  std::vector<size_t> places{};  ///< in the order of the round, one per update
  size_t of = 0;                 ///< how many the round has
  const Reduction* others = nullptr;
};

/// The uploads of a round, behind two doors. Sums of what each client could compute of its own upload are all that most
/// methods need: they come out the same, to the bit, wherever the uploads are, in any order (lora/fixed_point.h).
/// each() shows them one by one; a method whose row does not say that it needs that (MethodEntry::needs_individuals)
/// finds it locked. Borrows the updates; weights are p_c of all clients of the round, in its order. Pages of mapped
/// files leave memory as they are summed, so that 64 MiB or one site of all clients are there at a time; whoever reads
/// them through each() sees to that.
class Uploads {
 public:
  /// Of all clients of the round, in its order. \param one_by_one  whether each() opens
  explicit Uploads(std::span<const ClientUpdate> updates, bool one_by_one);
  /// Both doors open. Implicit: whoever has the updates of all clients has their uploads.
  Uploads(const std::vector<ClientUpdate>& updates) : Uploads(updates, true) {}  // NOLINT(google-explicit-constructor)
  /// Of some of the clients: everybody who holds others of them asks for the same sums, in the same order.
  Uploads(std::span<const ClientUpdate> updates, UploadShare share);

  /// Clients of the round, here or elsewhere.
  size_t size() const { return share_.of; }

  /// sum_c p_c theta_c of one factor of one site, in float32 or, of such factors, float64. Source: FedAvg (McMahan et
  /// al. 2017). \throws kNumeric naming a client that sent what is not finite, kShape one that sent another shape.
  at::Tensor mean(const std::string& site, at::Tensor LoraFactors::*factor, std::span<const double> weights) const;
  /// What a client's upload and its p_c give.
  using WeightsOf = std::function<at::Tensor(const ClientUpdate& update, double weight)>;
  /// sum_c w_c theta_c of the experts of a stack. \param weights_E  w_c, [E] float64
  at::Tensor mean(const std::string& site, at::Tensor LoraFactors::*factor, std::span<const double> weights,
                  const WeightsOf& weights_E) const;
  /// The same of an extra.
  at::Tensor mean(const std::string& extra, std::span<const double> weights) const;
  /// sum_c part(upload_c, p_c); parts that are undefined are left out.
  at::Tensor sum(std::span<const double> weights,
                 const std::function<at::Tensor(const ClientUpdate& update, double weight)>& part) const;

  /// \throws kInternal where this door is locked.
  std::span<const ClientUpdate> each() const;

 private:
  using TermOf = std::function<Term(const ClientUpdate& update, double weight)>;
  at::Tensor sum_of(std::string_view what, std::span<const double> weights, const TermOf& term) const;

  std::span<const ClientUpdate> updates_;
  UploadShare share_;
  bool open_;
};

}  // namespace evenkeel
