/// \file  Provides a fabric in which some clients are hostile: they train and then change their upload.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <set>
#include <string>

#include "fed/exchange/fabric.h"
#include "lora/payload.h"

namespace evenkeel::testing {

/// Changes one tensor of an upload. \param received  the tensor that the client began with; zeros where there was none
using Poison = std::function<at::Tensor(const at::Tensor& sent, const at::Tensor& received)>;

/// Sends 9e5 in every place, just below the largest allowed value (fed::kMostValue).
inline at::Tensor large(const at::Tensor& sent, const at::Tensor&) { return at::full_like(sent, 9e5); }
/// Sends the same moderate number in every place.
inline at::Tensor constant(const at::Tensor& sent, const at::Tensor&) { return at::full_like(sent, 2); }
/// Sends its update times `factor`.
inline Poison scaled(double factor) {
  return [factor](const at::Tensor& sent, const at::Tensor& received) { return received + factor * (sent - received); };
}

inline lora::Payload poisoned(const lora::Payload& sent, const lora::Payload& received, const Poison& poison) {
  auto changed = lora::received(sent);
  for (auto& [site, factors] : changed.adapters)
    for (const auto& factor : lora::kFactors) {
      auto& value = factors.*factor.tensor;
      if (!value.defined()) continue;
      const auto known = received.adapters.find(site);
      const auto begun = known == received.adapters.end() ? at::Tensor() : known->second.*factor.tensor;
      const bool same = begun.defined() && begun.sizes() == value.sizes();
      value = poison(value, same ? begun.to(value.scalar_type()) : at::zeros_like(value));
    }
  for (auto& [name, value] : changed.extras)
    if (name.ends_with(".gradient")) value = poison(value, at::zeros_like(value));
  return changed;
}

/// Poisons the uploads of some clients of another fabric, and also the gradients that a method begins with. Borrows
/// the fabric and the sites.
class PoisonedFabric : public fed::Fabric {
 public:
  PoisonedFabric(fed::Fabric& fabric, const lora::Sites& sites, std::set<int64_t> hostile, Poison poison)
      : fabric_(fabric), sites_(sites), hostile_(std::move(hostile)), poison_(std::move(poison)) {}

  void announce(std::span<const methods::ClientProfile> clients, const fed::StateUpdate& news) override {
    fabric_.announce(clients, news);
  }
  void remember(const fed::ClientMemories& memories) override { fabric_.remember(memories); }
  bool share(const methods::ServerState& state) override { return fabric_.share(state); }

  void exchange(std::span<const methods::ClientProfile> clients, const fed::Exchange& exchange) override {
    auto made = exchange;
    std::map<int64_t, lora::EncodedPayload> received;
    made.task_of = [&](const methods::ClientProfile& client) {
      auto task = exchange.task_of(client);
      if (hostile_.contains(client.id) && (task.payload.bytes.defined() || asks_gradients(task)))
        received[client.id] = task.payload;
      return task;
    };
    made.on_reply = [&](fed::Reply reply) {
      if (received.contains(reply.client) && !std::holds_alternative<fed::NoUpload>(reply.upload))
        reply.upload = changed(std::move(reply.upload), received.at(reply.client));
      exchange.on_reply(std::move(reply));
    };
    fabric_.exchange(clients, made);
  }

 private:
  static bool asks_gradients(const fed::Task& task) { return std::holds_alternative<fed::SumGradients>(task.ask); }

  fed::Upload changed(fed::Upload upload, const lora::EncodedPayload& task) const {
    const auto whole = fed::encoded(std::move(upload));
    const auto sent = lora::decode(fed::encoded_payload(whole)->bytes, "an upload");
    const auto begun = task.bytes.defined() ? lora::received(lora::decode(task.bytes, "a task")) : lora::Payload{};
    return lora::encode(poisoned(sent, begun, poison_), lora::TransportDtype::kFloat32, sites_);
  }

  fed::Fabric& fabric_;
  const lora::Sites& sites_;
  const std::set<int64_t> hostile_;
  const Poison poison_;
};

}  // namespace evenkeel::testing
