#include "methods/initial_state.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lora/algebra.h"

namespace evenkeel::methods {
namespace {

/// Puts the rows of `given` before the remaining rows of `fresh`, with the scale of `fresh`.
lora::LoraFactors prepend(const lora::LoraFactors& given, const lora::LoraFactors& fresh, const std::string& site) {
  const int64_t rank = given.rank(), all = fresh.rank();
  EK_CHECK(rank <= all, kConfig, "lora.init has rank ", rank, " at ", site, ", allowed: up to ", all,
           ", the largest rank of any client");
  auto factors = fresh;
  factors.a = at::cat({given.a.to(at::kFloat), fresh.a.narrow(-2, rank, all - rank)}, -2);
  const auto b = given.scaling == fresh.scaling ? given.b : given.b * (given.scaling / fresh.scaling);
  factors.b = at::cat({b.to(at::kFloat), fresh.b.narrow(-1, rank, all - rank)}, -1);
  return factors;
}

lora::AdapterState fresh_adapters(const ServerView& server, double scaling) {
  EK_CHECK(server.rank > 0, kConfig, "the LoRA rank is ", server.rank, ", allowed: 1 or more");
  return lora::make_adapters(server.sites, server.rank, scaling, server.seed);
}

}  // namespace

lora::AdapterState first_adapters(const ServerView& server) {
  auto adapters = fresh_adapters(server, server.scale.of(server.rank));
  if (!server.start) return adapters;
  for (const auto& [site, given] : *server.start) adapters.at(site) = prepend(given, adapters.at(site), site);
  return adapters;
}

lora::AdapterState first_truncated_adapters(const ServerView& server) {
  auto adapters = fresh_adapters(server, 1.0);
  if (!server.start) return adapters;
  std::map<std::string, std::vector<lora::LoraFactors>> parts;
  for (const auto& [site, given] : *server.start) parts[site] = {given};
  const std::vector<double> whole{1.0};
  const auto best =
      lora::best_factors(parts, whole, [&](const at::Tensor& s) { return std::min(server.rank, s.size(0)); });
  for (const auto& [site, given] : best)
    adapters.at(site) = prepend(lora::truncated(given, server.rank), adapters.at(site), site);
  return adapters;
}

lora::AdapterState first_base_change(const ServerView& server) {
  lora::AdapterState change;
  if (!server.start) return change;
  for (const auto& [site, given] : *server.start) change[site] = lora::weighted(given, 1.0);
  return change;
}

}  // namespace evenkeel::methods
