#include "fed/round/starting_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/plain/log.h"
#include "base/plain/lower_median.h"
#include "base/plain/text.h"
#include "fed/exchange/gradient_sums.h"
#include "fed/round/update_bounds.h"
#include "lora/packing.h"

namespace evenkeel::fed {
namespace {

/// Adds up clients' parts in the order of the clients. Parts that arrive early are kept until their turn.
class OrderedSums {
 public:
  explicit OrderedSums(std::span<const methods::ClientProfile> clients) : clients_(clients) {}
  /// \return false for parts that came before, which are left out
  bool add(int64_t client, TensorMap parts) {
    if (!heard_.insert(client).second) return false;
    early_[client] = std::move(parts);
    for (; next_ < clients_.size() && early_.contains(clients_[next_].id); ++next_) {
      const auto next = early_.extract(clients_[next_].id);
      for (const auto& [name, own] : next.mapped()) {
        auto& sum = sums_[name];
        sum = sum.defined() ? sum.add_(own) : own.clone();
      }
    }
    return true;
  }
  TensorMap& sums() { return sums_; }

 private:
  std::span<const methods::ClientProfile> clients_;
  size_t next_ = 0;
  std::set<int64_t> heard_;
  std::map<int64_t, TensorMap> early_;
  TensorMap sums_;
};

/// Largest size of the gradients that one request asks for: each request runs a forward and a backward pass over the
/// sample.
constexpr int64_t kGradientBytes = int64_t{2} << 30;

int64_t gradient_bytes(const lora::Site& site) { return 4 * std::max<int64_t>(site.experts, 1) * site.in * site.out; }

/// Returns the sites to request together with `site`: it and those after it in its layer.
std::vector<std::string> asked_with(const lora::Sites& sites, const std::string& site) {
  std::vector<std::string> together;
  int64_t bytes = 0;
  for (auto at = sites.find(site); at != sites.end() && lora::layer_of(at->first) == lora::layer_of(site); ++at) {
    bytes += gradient_bytes(at->second);
    if (!together.empty() && bytes > kGradientBytes) break;
    together.push_back(at->first);
  }
  return together;
}

std::vector<methods::ClientProfile> present(const Server& server) {
  std::vector<methods::ClientProfile> clients;
  for (const auto& client : server.clients)
    if (client.may_be_drawn(0)) clients.push_back(client);
  return clients;
}

/// Returns the Frobenius norm over all gradients of a client.
double norm_of(const TensorMap& gradients) {
  double squared = 0;
  for (const auto& [name, gradient] : gradients) {
    const auto norm = gradient.norm().item<double>();
    squared += norm * norm;
  }
  return std::sqrt(squared);
}

double median_of(const std::map<int64_t, double>& norms) {
  std::vector<double> values;
  for (const auto& [client, norm] : norms) values.push_back(norm);
  return lower_median(std::move(values));
}

}  // namespace

int64_t starting_gradient_bytes(const lora::Sites& sites) {
  int64_t most = 0;
  for (auto first = sites.begin(); first != sites.end();) {
    int64_t bytes = 0;
    for (size_t left = asked_with(sites, first->first).size(); left > 0; --left, ++first)
      bytes += 5 * gradient_bytes(first->second) + gradient_bytes(first->second) / first->second.out * first->second.in;
    most = std::max(most, bytes);
  }
  return most;
}

std::vector<methods::ClientProfile> StartingGradients::asked(const methods::GradientSample& sample) const {
  if (sample.from == methods::SampleFrom::kPooled) return {{.id = kPooledData}};
  auto clients = present(server_);
  std::erase_if(clients, [&](const auto& client) { return left_out_.contains(client.id); });
  return clients;
}

void StartingGradients::require_quorum() const {
  const size_t all = present(server_).size(), left = all - left_out_.size();
  EK_CHECK(static_cast<int64_t>(left) >= server_.config->clients.quorum, kData, left, " of ", all,
           " clients are left to make the gradients that method ", server_.config->method.name,
           " begins with, clients.quorum is ", server_.config->clients.quorum);
}

void StartingGradients::leave_out(int64_t client, const std::string& why) {
  log::warning("[train] before round 1: ", server_.config->clients.who(client), why);
  left_out_.insert(client);
}

TensorMap StartingGradients::sums_of(const std::vector<methods::ClientProfile>& asked, const SumGradients& ask) {
  OrderedSums sums(asked);
  norms_.clear();
  fabric_.exchange(asked,
                   {.task_of = [&](const methods::ClientProfile& client) { return Task{.client = client, .ask = ask}; },
                    .on_reply =
                        [&](const Reply& reply) {
                          auto gradients = gradients_in(reply);
                          const double norm = norm_of(gradients);
                          const auto* payload = encoded_payload(reply.upload);
                          if (!sums.add(reply.client, std::move(gradients)) || reply.client == kPooledData || !payload)
                            return;
                          norms_[reply.client] = norm;
                          bytes_up_ += payload->size();
                        },
                    .check =
                        [&](const methods::ClientProfile& client, const Reply& reply) {
                          EK_CHECK(encoded_payload(reply.upload) || client.examples == 0, kData, "client ", client.id,
                                   " has ", client.examples, " rows and sent no gradients");
                          check_gradients(server_.sites, ask, reply);
                          return std::nullopt;
                        },
                    .on_lost =
                        [&](int64_t client, const std::string& why) {
                          if (sums.add(client, {}))
                            leave_out(client, concat(" is lost, the method begins without its gradients: ", why));
                        }});
  return std::move(sums.sums());
}

std::set<int64_t> StartingGradients::too_large() const {
  std::set<int64_t> found;
  const double ratio = server_.config->clients.update_ratio;
  if (!server_.bounds_updates() || ratio == 0 || norms_.size() < kMajority) return found;
  const double median = median_of(norms_);
  for (const auto& [client, norm] : norms_)
    if (median > 0 && norm > ratio * median) found.insert(client);
  return found;
}

TensorMap StartingGradients::sums(const SumGradients& ask) {
  for (;;) {
    auto sums = sums_of(asked(ask.sample), ask);
    const auto out = too_large();
    for (const int64_t client : out)
      leave_out(client,
                concat(" is left out of the gradients that the method begins with: those of layer ",
                       lora::layer_of(ask.sites[0]), " have norm ", norms_.at(client), ", clients.update_ratio allows ",
                       server_.config->clients.update_ratio, " times ", median_of(norms_), ", the median"));
    if (ask.sample.from == methods::SampleFrom::kClients) require_quorum();
    if (out.empty()) return sums;
  }
}

at::Tensor StartingGradients::operator()(const std::string& site, const methods::GradientSample& sample) {
  const auto name = gradient_name(site);
  if (!known_.contains(name) || sample_ != sample) {
    known_ = sums({asked_with(server_.sites, site), sample});
    sample_ = sample;
  }
  const auto own = known_.extract(name);
  EK_CHECK(!own.empty(), kData, "no client has a row for the gradient of ", site, ", with which the method begins");
  return own.mapped();
}

}  // namespace evenkeel::fed
