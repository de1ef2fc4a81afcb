#include "methods/initial_state.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lora/algebra.h"

namespace evenkeel::methods {
namespace {

/// The rule for methods that train the factors of the start: they take all of it or refuse it.
void check_rank(const ServerView& server) {
  for (const auto& [site, given] : *server.start)
    EK_CHECK(given.rank() <= server.rank, kConfig, "lora.init has rank ", given.rank(), " at ", site,
             ", allowed: up to ", server.rank, ", the largest rank of any client");
}

/// Returns A with fresh rows where a row of A and its column of B are zero, as in padding: these would never train.
at::Tensor without_idle_rows(const lora::LoraFactors& given, const at::Tensor& fresh_a) {
  const auto idle = given.a.eq(0).all(-1).logical_and(given.b.eq(0).all(-2));
  return at::where(idle.unsqueeze(-1), fresh_a, given.a.to(at::kFloat));
}

/// Puts the rows of `given` before the remaining rows of `fresh`, with the scale of `fresh`.
lora::LoraFactors prepend(const lora::LoraFactors& given, const lora::LoraFactors& fresh) {
  const int64_t rank = given.rank(), all = fresh.rank();
  auto factors = fresh;
  factors.a =
      at::cat({without_idle_rows(given, fresh.a.narrow(-2, 0, rank)), fresh.a.narrow(-2, rank, all - rank)}, -2);
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
  check_rank(server);
  for (const auto& [site, given] : *server.start) adapters.at(site) = prepend(given, adapters.at(site));
  return adapters;
}

lora::AdapterState first_svd_adapters(const ServerView& server) {
  auto adapters = fresh_adapters(server, 1.0);
  if (!server.start) return adapters;
  check_rank(server);
  std::map<std::string, std::vector<lora::LoraFactors>> parts;
  for (const auto& [site, given] : *server.start) parts[site] = {given};
  const std::vector<double> whole{1.0};
  const auto best =
      lora::best_factors(parts, whole, [&](const at::Tensor& s) { return std::min(server.rank, s.size(0)); });
  for (const auto& [site, given] : best) adapters.at(site) = prepend(given, adapters.at(site));
  return adapters;
}

lora::AdapterState first_base_change(const ServerView& server) {
  lora::AdapterState change;
  if (server.start) lora::add_to_base(change, *server.start);
  return change;
}

}  // namespace evenkeel::methods
