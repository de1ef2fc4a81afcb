#include "fed/round/starting_adapter.h"

#include <ATen/ATen.h>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/random/random.h"
#include "base/system/error_context.h"
#include "fed/round/starting_gradients.h"
#include "lora/algebra.h"
#include "lora/peft.h"

namespace evenkeel::fed {
namespace {

// Relative to the largest value of the product, because folding and decomposing round.
constexpr double kTolerance = 1e-3;

/// Returns scaling B A x, [*, out], for a fixed random vector of signs x.
at::Tensor probed(const lora::LoraFactors& factors, const std::string& site) {
  auto x_I = at::empty({factors.a.size(-1)}, at::kFloat);
  RandomStream stream(1, "start " + site);
  for (int64_t i = 0; i < x_I.numel(); ++i) x_I.mutable_data_ptr<float>()[i] = stream.below(2) == 0 ? -1.0F : 1.0F;
  const auto product = at::matmul(factors.b.to(at::kFloat), at::matmul(factors.a.to(at::kFloat), x_I).unsqueeze(-1));
  return product.squeeze(-1) * factors.scaling;
}

bool has_effect(const lora::AdapterState& whole, const lora::AdapterState& start) {
  for (const auto& [site, factors] : start) {
    const auto found = whole.find(site);
    if (found == whole.end()) return false;
    const auto wanted = probed(factors, site), made = probed(found->second, site);
    if ((wanted - made).abs().max().item<double>() > kTolerance * (1e-12 + wanted.abs().max().item<double>()))
      return false;
  }
  return true;
}

bool is_zero(const lora::LoraFactors& factors) {
  return !factors.a.any().item<bool>() && !factors.b.any().item<bool>();
}

std::string named(const Server& server) { return concat("lora.init = \"", server.config->lora.init, "\""); }

}  // namespace

lora::AdapterState adapter_to_start_from(const Server& server) {
  const auto& config = server.config;
  if (config->lora.init.empty()) return {};
  EK_CHECK(config->method.entry().starts_from_adapter, kConfig, named(server), ": method ", config->method.name,
           " makes its factors from gradients and cannot start from an adapter, allowed: empty");
  EK_CHECK(is_folder(config->lora.init), kConfig, named(server), " is no folder");
  auto start = in_context(named(server), [&] { return lora::load_peft_adapter(config->lora.init, server.all_sites); });
  std::erase_if(start, [&](const auto& site) { return !server.sites.contains(site.first) && is_zero(site.second); });
  for (const auto& [site, factors] : start)
    EK_CHECK(server.sites.contains(site), kConfig, named(server), " adapts ", site,
             ", which is not among lora.targets and lora.router_lora");
  return start;
}

methods::ServerState first_state(const Server& server, methods::GradientSum gradient_sum) {
  const auto start = adapter_to_start_from(server);
  auto view = server.view(0, std::move(gradient_sum));
  if (!start.empty()) view.start = &start;
  auto state = server.method->initialize(view);
  EK_CHECK(state.global.base_delta.empty(), kConfig, "method ", server.config->method.name,
           " changes the base in initialize(), allowed: base_delta of the state that aggregate() returns");
  EK_CHECK(start.empty() || has_effect(methods::whole_adapter(state), start), kConfig, named(server), ": method ",
           server.config->method.name, " does not start from an adapter, allowed: empty");
  return state;
}

methods::ServerState initial_state(const Server& server, Fabric& fabric, OtherTraffic* sent) {
  int64_t bytes_up = 0;
  auto state = first_state(server, StartingGradients(server, fabric, bytes_up));
  if (sent) sent->up["gradient_sums"] += bytes_up;
  return state;
}

void check_start(const Server& server) {
  const auto start = adapter_to_start_from(server);
  if (start.empty()) return;
  first_state(server);
  if (start.size() < server.sites.size())
    log::warning("[train] ", named(server), " has ", start.size(), " of the run's ", server.sites.size(),
                 " sites: the others begin with fresh factors");
}

}  // namespace evenkeel::fed
