#include "methods/make_rule.h"

#include <algorithm>
#include <cmath>

#include "base/plain/error.h"
#include "base/plain/mapped_files.h"
#include "lora/distance.h"
#include "methods/method_registry.h"
#include "methods/rules.h"

namespace evenkeel::methods {
namespace {

/// Calls see(x, y) with every pair of tensors that two payloads have in common, but integers.
template <typename See>
void for_each_common(const lora::Payload& one, const lora::Payload& other, const std::string& site, const See& see) {
  const auto x = one.adapters.find(site), y = other.adapters.find(site);
  if (x == one.adapters.end() || y == other.adapters.end()) return;
  for (const auto& factor : lora::kFactors) {
    const auto &own = x->second.*factor.tensor, &others = y->second.*factor.tensor;
    if (own.defined() && others.defined()) see(own, others);
  }
}

double squared_distance_at(const lora::Payload& one, const lora::Payload& other, const std::string& site) {
  double squares = 0;
  for_each_common(one, other, site,
                  [&](const at::Tensor& x, const at::Tensor& y) { squares += lora::squared_distance(x, y); });
  return squares;
}

/// Returns the squared distance over the extras of floating point that `before` has too: those that clients train.
double squared_distance_of_extras(const lora::Payload& one, const lora::Payload& other, const lora::Payload& before) {
  double squares = 0;
  for (const auto& [name, sent] : before.extras) {
    const auto x = one.extras.find(name), y = other.extras.find(name);
    if (x != one.extras.end() && y != other.extras.end() && sent.is_floating_point())
      squares += lora::squared_distance(x->second, y->second);
  }
  return squares;
}

/// Returns the norm of what each client added to `before`.
std::vector<double> norms_of(std::span<const ClientUpdate> updates, const lora::Payload& before) {
  std::vector<double> squares;
  for (const auto& update : updates) squares.push_back(squared_distance_of_extras(update.payload, before, before));
  for (const auto& [site, factors] : before.adapters) {
    for (size_t i = 0; i < updates.size(); ++i) squares[i] += squared_distance_at(updates[i].payload, before, site);
    release_mapped_pages();
  }
  for (double& square : squares) square = std::sqrt(square);
  return squares;
}

/// Squared distances between uploads: [i][j] with j < i holds that of uploads i and j.
using Distances = std::vector<std::vector<double>>;

Distances no_distances(size_t uploads) { return Distances(uploads, std::vector<double>(uploads)); }

/// Calls f(i, j) with every pair of uploads, j < i.
template <typename F>
void for_each_pair(size_t uploads, const F& f) {
  for (size_t i = 0; i < uploads; ++i)
    for (size_t j = 0; j < i; ++j) f(i, j);
}

/// Adds the squared distances of one tensor of all uploads. Each is converted once for all of its pairs.
/// \param sent  returns the tensor of an upload, or null if the upload has none
template <typename Sent>
void add_distances(std::span<const ClientUpdate> updates, Distances& squares, const Sent& sent) {
  std::vector<at::Tensor> tensors;
  for (const auto& update : updates) {
    const at::Tensor* own = sent(update.payload);
    tensors.push_back(own && own->defined() ? lora::comparable(*own) : at::Tensor());
  }
  for_each_pair(updates.size(), [&](size_t i, size_t j) {
    if (tensors[i].defined() && tensors[j].defined()) squares[i][j] += lora::squared_distance(tensors[i], tensors[j]);
  });
}

/// Returns the squared distances over the factors of a site.
Distances distances_at(std::span<const ClientUpdate> updates, const std::string& site) {
  auto squares = no_distances(updates.size());
  for (const auto& factor : lora::kFactors)
    add_distances(updates, squares, [&](const lora::Payload& payload) {
      const auto found = payload.adapters.find(site);
      return found == payload.adapters.end() ? nullptr : &(found->second.*factor.tensor);
    });
  return squares;
}

/// Returns the squared distances over the extras that squared_distance_of_extras() names.
Distances distances_of_extras(std::span<const ClientUpdate> updates, const lora::Payload& before) {
  auto squares = no_distances(updates.size());
  for (const auto& [name, tensor] : before.extras)
    if (tensor.is_floating_point())
      add_distances(updates, squares, [&name = name](const lora::Payload& payload) {
        const auto found = payload.extras.find(name);
        return found == payload.extras.end() ? nullptr : &found->second;
      });
  return squares;
}

/// Returns the squared distances between all uploads. Memory: one factor of one site of all uploads in float32.
Distances distances_between(std::span<const ClientUpdate> updates, const lora::Payload& before) {
  auto all = distances_of_extras(updates, before);
  for (const auto& [site, factors] : before.adapters) {
    const auto squares = distances_at(updates, site);
    for_each_pair(updates.size(), [&](size_t i, size_t j) { all[i][j] += squares[i][j]; });
    release_mapped_pages();
  }
  for_each_pair(updates.size(), [&](size_t i, size_t j) { all[j][i] = all[i][j]; });
  return all;
}

void check_finite_norms(std::span<const double> norms, std::span<const ClientUpdate> updates) {
  for (size_t i = 0; i < norms.size(); ++i)
    EK_CHECK(std::isfinite(norms[i]), kNumeric, "aggregate: the upload of client ", updates[i].client.id,
             " holds a value that is not finite");
}

/// Returns k of the trimmed mean. Lost clients do not lower it.
int64_t checked_trim(const AggregationOptions& options, int64_t drawn, int64_t uploads) {
  const int64_t k = options.trimmed(drawn);
  EK_CHECK(k >= 1, kData, "aggregation.rule trimmed_mean with trim = ", options.trim, " leaves out none of the ", drawn,
           " clients drawn for the round, allowed: clients enough for one");
  EK_CHECK(uploads > 2 * k, kData, "aggregation.rule trimmed_mean with trim = ", options.trim, " of ", drawn,
           " drawn clients takes ", 2 * k + 1, " uploads or more, ", uploads, " are left of the round");
  return k;
}

}  // namespace

std::unique_ptr<CombiningRule> make_rule(const AggregationOptions& options, std::span<const ClientUpdate> updates,
                                         const lora::Payload& before, int64_t drawn) {
  const auto uploads = static_cast<int64_t>(updates.size());
  switch (options.rule) {
    case AggregationRule::kTrimmedMean:
      return trimmed_mean_rule(checked_trim(options, drawn, uploads));
    case AggregationRule::kMedian:
      return median_rule();
    case AggregationRule::kClippedMean: {
      const auto norms = norms_of(updates, before);
      check_finite_norms(norms, updates);
      return clipped_mean_rule(norms);
    }
    case AggregationRule::kKrum: {
      EK_CHECK(uploads >= options.least_of_krum(), kData, "aggregation.rule krum with byzantine = ", options.byzantine,
               " takes ", options.least_of_krum(), " uploads or more, ", uploads, " are left of the round");
      check_finite_norms(norms_of(updates, before), updates);
      return krum_rule(krum_choice(distances_between(updates, before), options.byzantine));
    }
    case AggregationRule::kMean:
      break;
  }
  return nullptr;
}

void check_rule(const AggregationOptions& options, const MethodEntry& method, int64_t drawn,
                const config::Table& table) {
  const auto named = config::name_of(options.rule);
  if (options.rule == AggregationRule::kMean) return;
  table.check(!method.needs_individuals, "rule", concat('"', named, '"'),
              concat("mean, with method ", method.name, ", whose server does more than average factors"));
  table.check(!method.weighs_experts || options.rule == AggregationRule::kClippedMean, "rule", concat('"', named, '"'),
              concat("mean or clipped_mean, with method ", method.name, ", which weighs each expert of each client"));
  table.check(options.rule != AggregationRule::kTrimmedMean || options.trimmed(drawn) >= 1, "trim", options.trim,
              concat("enough for one of the ", drawn, " clients drawn per round: ", 1.0 / static_cast<double>(drawn),
                     " or more, below 0.5"));
  table.check(options.rule != AggregationRule::kKrum || drawn >= options.least_of_krum(), "byzantine",
              options.byzantine, concat("f with 2 f + 3 <= ", drawn, ", the clients drawn per round"));
}

}  // namespace evenkeel::methods
