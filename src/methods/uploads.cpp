#include "methods/uploads.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace evenkeel {

LoraFactors ClientUpdate::factors(const std::string& site) const {
  const auto found = payload.adapters.find(site);
  EK_CHECK(found != payload.adapters.end(), kShape, "aggregate: client ", client.id, " did not send ", site);
  return received(found->second);
}

const at::Tensor& ClientUpdate::extra(const std::string& name) const {
  const auto found = payload.extras.find(name);
  EK_CHECK(found != payload.extras.end(), kShape, "aggregate: client ", client.id, " did not send ", name);
  return found->second;
}

at::Tensor Uploads::mean(const std::string& site, at::Tensor LoraFactors::*factor,
                         std::span<const double> weights) const {
  std::vector<at::Tensor> parts;
  for (const auto& update : updates_) parts.push_back(update.factors(site).*factor);
  return weighted_mean(parts, weights);
}

at::Tensor Uploads::mean(const std::string& extra, std::span<const double> weights) const {
  std::vector<at::Tensor> parts;
  for (const auto& update : updates_) parts.push_back(update.extra(extra));
  return weighted_mean(parts, weights);
}

at::Tensor Uploads::sum(std::span<const double> weights,
                        const std::function<at::Tensor(const ClientUpdate& update, double weight)>& part) const {
  EK_CHECK(updates_.size() == weights.size(), kInternal, "aggregate: ", updates_.size(), " updates for ",
           weights.size(), " weights");
  at::Tensor sum;
  for (size_t c = 0; c < updates_.size(); ++c) {
    const auto own = part(updates_[c], weights[c]);
    if (own.defined()) sum = sum.defined() ? sum + own : own;
  }
  return sum;
}

std::span<const ClientUpdate> Uploads::each() const {
  EK_CHECK(open_, kInternal, "a method reads uploads one by one, but its row does not say needs_individuals");
  return updates_;
}

}  // namespace evenkeel
