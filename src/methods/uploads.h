/// \file  Gives the server half of a method access to the uploads of a round.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/fixed_point.h"
#include "lora/payload.h"
#include "methods/profile.h"

namespace evenkeel::methods {

/// Holds the upload of one client. Tensors may be views of a memory-mapped journal file, so read them one site at a
/// time.
struct ClientUpdate {
  ClientProfile client;
  lora::Payload payload;
  int64_t steps = 0;  ///< number of optimiser steps

  /// Returns the factors of a site, converted to float32 unless they are wider.
  /// \throws kShape when the client did not send the site
  lora::LoraFactors factors(const std::string& site) const;
  /// Returns the factors of a site without conversion.
  /// \throws kShape when the client did not send the site
  const lora::LoraFactors& sent(const std::string& site) const;
  /// Returns one factor of a site without conversion.
  /// \throws kShape when the client did not send it
  const at::Tensor& sent(const std::string& site, at::Tensor lora::LoraFactors::*factor) const;
  /// Returns an extra tensor.
  /// \throws kShape when the client did not send it
  const at::Tensor& extra(const std::string& name) const;
};

/// Returns the factors of each site as sent by all clients, in the order of `updates`. The tensors are views.
/// \throws kShape when a client did not send A and B of a site
std::map<std::string, std::vector<lora::LoraFactors>> parts_of(const lora::Sites& sites,
                                                               std::span<const ClientUpdate> updates);

/// Describes which uploads of a round are in this process, and how to sum with the other processes of a cluster.
struct UploadShare {
  std::vector<size_t> places{};             ///< position of each local update in the order of the round
  size_t total = 0;                         ///< number of uploads of the round
  const lora::Reduction* others = nullptr;  ///< sums over the other processes; null: all uploads are here
};

/// The sums of a round in which the server gets no single upload, over the clients whose upload arrived.
struct RoundTotals {
  /// sum_c p_c (theta_c - before), with FederatedMethod::expert_weights() in place of p_c if the method returns any.
  lora::AdapterState changes{};
  TensorMap sums{};             ///< sums over clients of FederatedMethod::summands(), float64
  lora::AdapterState before{};  ///< what the clients received
};

class CombiningRule;

/// A rule in place of the weighted mean (methods/combining_rule.h). Borrowed.
struct RuleOfRound {
  const CombiningRule* rule = nullptr;    ///< null: the mean
  const lora::Payload* before = nullptr;  ///< what the server sent; not null if `rule` is set
};

/// Gives access to the uploads of a round as sums or one by one. It borrows the updates.
/// Sums are enough for most methods. They are bit-identical on any number of processes and in any order
/// (lora/fixed_point.h). Mapped files are released during summation: at most 64 MiB, or one site of all clients, is in
/// memory.
/// In a round whose uploads are hidden (RoundTotals), the same functions return what the totals hold. each() and mean()
/// with weights per expert then throw kInternal; change() gives the sums of such weighted changes.
/// each() gives single uploads. It needs MethodEntry::needs_individuals. Its callers call release_mapped_pages()
/// (base/plain/mapped_files.h) after each site, or all uploads stay in memory.
/// The argument `weights` always holds p_c of all clients of the round, in the order of the round. All sums throw
/// kInternal when the number of weights is wrong, kShape naming a client that did not send the tensor or sent another
/// shape, and kNumeric naming a client with a value that is not finite.
class Uploads {
 public:
  /// Wraps the uploads of all clients of a round, in the order of the round.
  /// \param one_by_one  true: each() is allowed
  /// \param rule        used by mean() in place of the weighted mean; sum() stays a sum
  explicit Uploads(std::span<const ClientUpdate> updates, bool one_by_one, RuleOfRound rule = {});
  /// Wraps the uploads of all clients and allows each(). The conversion is implicit on purpose.
  Uploads(const std::vector<ClientUpdate>& updates) : Uploads(updates, true) {}  // NOLINT(google-explicit-constructor)
  /// Wraps the uploads of some clients. All processes must ask for the same sums in the same order. each() is not
  /// allowed.
  /// \throws kInternal when `share.places` and `updates` differ in size
  Uploads(std::span<const ClientUpdate> updates, UploadShare share);

  /// Wraps the totals of a round. `updates` hold clients and steps, and no payloads. Totals are borrowed.
  Uploads(std::span<const ClientUpdate> updates, UploadShare share, const RoundTotals& totals);

  /// Returns the number of clients of the round in all processes.
  size_t size() const { return share_.total; }

  /// Computes sum_c p_c theta_c for one factor of one site, in float32, or in float64 if the factors are float64.
  /// Source: FedAvg (McMahan et al. 2017).
  at::Tensor mean(const std::string& site, at::Tensor lora::LoraFactors::*factor,
                  std::span<const double> weights) const;
  /// Computes the weights of an upload, given the client's p_c.
  using WeightsOf = std::function<at::Tensor(const ClientUpdate& update, double weight)>;
  /// Computes sum_c w_c theta_c for a stack of experts, with one weight per expert.
  /// \param weights_E  returns w_c, [E] float64
  at::Tensor mean(const std::string& site, at::Tensor lora::LoraFactors::*factor, std::span<const double> weights,
                  const WeightsOf& weights_E) const;
  /// Computes sum_c p_c theta_c for an extra tensor.
  at::Tensor mean(const std::string& extra, std::span<const double> weights) const;
  /// Computes sum_c part(upload_c, p_c). Undefined parts are omitted. Where uploads are hidden, `part` may read client
  /// and steps only.
  at::Tensor sum(std::span<const double> weights,
                 const std::function<at::Tensor(const ClientUpdate& update, double weight)>& part) const;

  /// Computes sum_c part(upload_c, p_c), or returns the total `name` of FederatedMethod::summands() if uploads are
  /// hidden.
  at::Tensor sum(const std::string& name, std::span<const double> weights,
                 const std::function<at::Tensor(const ClientUpdate& update, double weight)>& part) const;
  /// Returns true if uploads are hidden and only totals are known. A round may then have no upload; its change is only
  /// noise.
  bool hidden() const { return totals_ != nullptr; }
  /// Returns true if sum() can return the sum `name`. False: only summed changes are known ([privacy] unit = "client").
  bool has_sum(const std::string& name) const { return !totals_ || totals_->sums.contains(name); }
  /// A factor as the clients received it, and the sum of their changes.
  struct Change {
    at::Tensor before, change;
  };
  /// Returns the summed change of a factor if uploads are hidden, otherwise nullopt.
  /// \throws kInternal when no client changes it
  std::optional<Change> change(const std::string& site, at::Tensor lora::LoraFactors::*factor) const;

  /// Returns the single uploads.
  /// \throws kInternal when each() is not allowed
  std::span<const ClientUpdate> each() const;

 private:
  /// Applies the rule to one tensor of all uploads.
  at::Tensor combined(std::string_view what, std::span<const double> weights, const at::Tensor& before,
                      const std::function<const at::Tensor&(const ClientUpdate& update)>& part,
                      const WeightsOf& weights_E = {}) const;
  at::Tensor total(const std::string& name) const;
  at::Tensor before_of(const std::string& site, at::Tensor lora::LoraFactors::*factor) const;
  using TermOf = std::function<lora::Term(const ClientUpdate& update, double weight)>;
  at::Tensor sum_of(std::string_view what, std::span<const double> weights, const TermOf& term) const;

  std::span<const ClientUpdate> updates_;
  UploadShare share_;
  RuleOfRound rule_{};
  const RoundTotals* totals_ = nullptr;
  bool open_;  // each() is allowed
};

}  // namespace evenkeel::methods
