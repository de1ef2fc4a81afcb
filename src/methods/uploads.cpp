#include "methods/uploads.h"

#include <ATen/ATen.h>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/mapped_files.h"
#include "methods/combining_rule.h"

namespace evenkeel::methods {

const lora::LoraFactors& ClientUpdate::sent(const std::string& site) const {
  const auto found = payload.adapters.find(site);
  EK_CHECK(found != payload.adapters.end(), kShape, "aggregate: client ", client.id, " did not send ", site);
  return found->second;
}

const at::Tensor& ClientUpdate::sent(const std::string& site, at::Tensor lora::LoraFactors::*factor) const {
  const auto& values = sent(site).*factor;
  EK_CHECK(values.defined(), kShape, "aggregate: client ", client.id, " sent a part of ", site, " only");
  return values;
}

lora::LoraFactors ClientUpdate::factors(const std::string& site) const { return lora::received(sent(site)); }

const at::Tensor& ClientUpdate::extra(const std::string& name) const {
  const auto found = payload.extras.find(name);
  EK_CHECK(found != payload.extras.end(), kShape, "aggregate: client ", client.id, " did not send ", name);
  return found->second;
}

std::map<std::string, std::vector<lora::LoraFactors>> parts_of(const lora::Sites& sites,
                                                               std::span<const ClientUpdate> updates) {
  std::map<std::string, std::vector<lora::LoraFactors>> parts;
  for (const auto& [site, shape] : sites)
    for (const auto& update : updates) {
      for (const auto factor : {&lora::LoraFactors::a, &lora::LoraFactors::b}) update.sent(site, factor);
      parts[site].push_back(update.sent(site));
    }
  return parts;
}

Uploads::Uploads(std::span<const ClientUpdate> updates, bool one_by_one, RuleOfRound rule)
    : updates_(updates), share_{.total = updates.size()}, rule_(rule), open_(one_by_one) {
  for (size_t i = 0; i < updates.size(); ++i) share_.places.push_back(i);
}

Uploads::Uploads(std::span<const ClientUpdate> updates, UploadShare share)
    : updates_(updates), share_(std::move(share)), open_(false) {
  EK_CHECK(share_.places.size() == updates.size(), kInternal, "aggregate: ", updates.size(), " updates in ",
           share_.places.size(), " places");
}

Uploads::Uploads(std::span<const ClientUpdate> updates, UploadShare share, const RoundTotals& totals)
    : Uploads(updates, std::move(share)) {
  totals_ = &totals;
}

at::Tensor Uploads::sum_of(std::string_view what, std::span<const double> weights, const TermOf& term) const {
  EK_CHECK(size() == weights.size(), kInternal, "aggregate: ", size(), " updates for ", weights.size(), " weights");
  const lora::Terms terms{
      .here = updates_.size(),
      .global_term_count = size(),
      .at = [&](size_t i) { return term(updates_[i], weights[share_.places[i]]); },
      .who = [&](size_t i) { return concat("aggregate: ", what, " of client ", updates_[i].client.id); }};
  auto total = share_.others ? lora::fixed_point_sum(terms, *share_.others) : lora::fixed_point_sum(terms);
  if (total.defined()) advise_dontneed(updates_.size() * total.nbytes());
  return total;
}

at::Tensor Uploads::mean(const std::string& site, at::Tensor lora::LoraFactors::*factor,
                         std::span<const double> weights) const {
  if (const auto summed = change(site, factor)) return summed->before + summed->change;
  if (rule_.rule)
    return combined(site, weights, before_of(site, factor),
                    [&](const ClientUpdate& update) -> const at::Tensor& { return update.sent(site, factor); });
  return sum_of(site, weights, [&](const ClientUpdate& update, double weight) {
    return lora::Term{update.sent(site, factor), weight};
  });
}

at::Tensor Uploads::mean(const std::string& site, at::Tensor lora::LoraFactors::*factor,
                         std::span<const double> weights, const WeightsOf& weights_E) const {
  EK_CHECK(!totals_, kInternal, "a method weighs the experts of hidden uploads");
  if (rule_.rule)
    return combined(
        site, weights, before_of(site, factor),
        [&](const ClientUpdate& update) -> const at::Tensor& { return update.sent(site, factor); }, weights_E);
  return sum_of(site, weights, [&](const ClientUpdate& update, double weight) {
    return lora::Term{.values = update.sent(site, factor), .weights_E = weights_E(update, weight)};
  });
}

at::Tensor Uploads::mean(const std::string& extra, std::span<const double> weights) const {
  if (totals_) return total(extra).to(at::kFloat);
  if (rule_.rule) {
    const auto sent = rule_.before->extras.find(extra);
    return combined(extra, weights, sent == rule_.before->extras.end() ? at::Tensor() : sent->second,
                    [&](const ClientUpdate& update) -> const at::Tensor& { return update.extra(extra); });
  }
  return sum_of(extra, weights, [&](const ClientUpdate& update, double weight) {
    return lora::Term{update.extra(extra), weight};
  });
}

at::Tensor Uploads::sum(std::span<const double> weights,
                        const std::function<at::Tensor(const ClientUpdate& update, double weight)>& part) const {
  return sum_of("a part", weights, [&](const ClientUpdate& update, double weight) {
    return lora::Term{part(update, weight), 1};
  });
}

at::Tensor Uploads::sum(const std::string& name, std::span<const double> weights,
                        const std::function<at::Tensor(const ClientUpdate& update, double weight)>& part) const {
  return totals_ ? total(name) : sum(weights, part);
}

std::optional<Uploads::Change> Uploads::change(const std::string& site, at::Tensor lora::LoraFactors::*factor) const {
  if (!totals_) return {};
  const auto found = totals_->changes.find(site);
  EK_CHECK(found != totals_->changes.end() && (found->second.*factor).defined(), kInternal,
           "aggregate: no client changes ", site);
  return Change{totals_->before.at(site).*factor, found->second.*factor};
}

at::Tensor Uploads::total(const std::string& name) const {
  const auto found = totals_->sums.find(name);
  EK_CHECK(found != totals_->sums.end(), kInternal, "aggregate: no client adds to ", name);
  return found->second;
}

at::Tensor Uploads::before_of(const std::string& site, at::Tensor lora::LoraFactors::*factor) const {
  const auto sent = rule_.before->adapters.find(site);
  return sent == rule_.before->adapters.end() ? at::Tensor() : sent->second.*factor;
}

at::Tensor Uploads::combined(std::string_view what, std::span<const double> weights, const at::Tensor& before,
                             const std::function<const at::Tensor&(const ClientUpdate& update)>& part,
                             const WeightsOf& weights_E) const {
  EK_CHECK(size() == weights.size() && !share_.others, kInternal, "aggregate: ", size(), " updates for ",
           weights.size(), " weights, or uploads in other processes");
  Parts parts{.values = {},
              .weights = {weights.begin(), weights.end()},
              .weights_E = {},
              .before = before,
              .who = [&](size_t i) { return concat("aggregate: ", what, " of client ", updates_[i].client.id); }};
  for (size_t i = 0; i < updates_.size(); ++i) {
    parts.values.push_back(part(updates_[i]));
    if (weights_E) parts.weights_E.push_back(weights_E(updates_[i], weights[i]));
  }
  auto result = rule_.rule->combine(parts);
  advise_dontneed(updates_.size() * result.nbytes());
  return result;
}

std::span<const ClientUpdate> Uploads::each() const {
  EK_CHECK(open_, kInternal, "a method reads uploads one by one, but its row does not say needs_individuals");
  return updates_;
}

}  // namespace evenkeel::methods
