#include "host/objects.h"

#include <atomic>
#include <charconv>
#include <optional>

namespace evenkeel::host {
namespace {

using methods::ClientUpdate, methods::ClientView, methods::LocalSetup, methods::ServerState, methods::ServerView,
    methods::StepView, methods::Uploads;

Group adapters_of(const lora::AdapterState& adapters) { return {.adapters = adapters}; }
Group tensors_of(const TensorMap& tensors) { return {.tensors = tensors}; }

/// Returns N of "PREFIX/N"; nothing for other names.
std::optional<size_t> index_in(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  size_t index = 0;
  const auto* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + prefix.size(), end, index);
  return read.ec == std::errc() && read.ptr == end ? std::optional(index) : std::nullopt;
}

Group counts_of(const nn::RoutingByLayer& routing) {
  TensorMap counts;
  for (const auto& [layer, stats] : routing) counts[layer] = stats.counts;
  return tensors_of(counts);
}

Group logits_of(const nn::RoutingByLayer& routing) {
  TensorMap logits;
  for (const auto& [layer, stats] : routing)
    if (stats.router_logits.defined()) logits[layer] = stats.router_logits;
  return tensors_of(logits);
}

using Found = std::optional<Group>;

Found group_of(const lora::Payload& payload, std::string_view name) {
  if (name == "adapters") return adapters_of(payload.adapters);
  if (name == "extras") return tensors_of(payload.extras);
  if (name == "base_delta") return adapters_of(payload.base_delta);
  return {};
}

Found group_of(const methods::Common& common, std::string_view name) {
  if (name == "fixed") return adapters_of(common.fixed);
  if (name == "base_change") return adapters_of(common.base_change);
  return {};
}

Found group_of(const ServerState& state, std::string_view name) {
  if (name == "memory") return tensors_of(state.memory);
  if (auto found = group_of(state.common, name)) return found;
  return group_of(state.global, name);
}

Found group_of(const LocalSetup& setup, std::string_view name) {
  if (name == "adapters") return adapters_of(setup.adapters);
  if (name == "extra_trainables") return tensors_of(setup.extra_trainables);
  if (name == "modulation") return tensors_of(setup.router.modulation);
  if (name == "notes") return tensors_of(setup.notes);
  return {};
}

Found group_of(const StepView& step, std::string_view name) {
  if (name == "parameters") return adapters_of(trained_factors(step, false));
  if (name == "gradients") return adapters_of(trained_factors(step, true));
  if (name == "extra_parameters") return tensors_of(trained_extras(step, false));
  if (name == "extra_gradients") return tensors_of(trained_extras(step, true));
  const auto batches = step.micro_batches.size();
  if (const auto i = index_in(name, "counts/"); i && *i < batches) return counts_of(step.micro_batches[*i]);
  if (const auto i = index_in(name, "logits/"); i && *i < batches) return logits_of(step.micro_batches[*i]);
  return {};
}

Found group_of(const ServerView* server, std::string_view name) {
  if (name != "start") return {};
  return adapters_of(server->start ? *server->start : lora::AdapterState());
}
Found group_of(const ClientView* view, std::string_view name) {
  return name == "memory" ? Found(tensors_of(view->memory)) : group_of(view->common, name);
}
Found group_of(const nn::RoutingByLayer* routing, std::string_view name) {
  return name == "counts" ? Found(counts_of(*routing)) : Found();
}
Found group_of(const ClientUpdate* update, std::string_view name) { return group_of(update->payload, name); }
Found group_of(const StepView* step, std::string_view name) { return group_of(*step, name); }
Found group_of(const Uploads*, std::string_view) { return {}; }
Found group_of(const at::Tensor&, std::string_view) { return {}; }
template <typename T>
Found group_of(const std::shared_ptr<const T>& object, std::string_view name) {
  return group_of(*object, name);
}

}  // namespace

int64_t Objects::add(Object object) {
  static std::atomic<int64_t> last{0};
  const int64_t number = ++last;
  objects_.emplace(number, std::move(object));
  return number;
}

Group Objects::group(const JsonView& number, const JsonView& name) const {
  const auto found = objects_.find(number.integer());
  number.require(found != objects_.end(), " is an object of an earlier call: a hook keeps no arguments");
  auto group = std::visit([&](const auto& object) { return group_of(object, name.string()); }, found->second);
  name.require(group.has_value(), " is no group of this object");
  return std::move(*group);
}

lora::AdapterState trained_factors(const StepView& step, bool gradients) {
  const auto part = [&](const at::Tensor& tensor, bool trained) {
    return !trained || !tensor.defined() ? at::Tensor() : gradients ? tensor.grad() : tensor;
  };
  const auto trains = step.setup.trainable;
  const bool core = trains == methods::Trainable::kCore;
  lora::AdapterState factors;
  for (const auto& [site, own] : step.setup.adapters)
    factors[site] = {.a = part(own.a, trains == methods::Trainable::kAB),
                     .b = part(own.b, !core),
                     .core = part(own.core, core),
                     .scaling = own.scaling};
  return factors;
}

TensorMap trained_extras(const StepView& step, bool gradients) {
  TensorMap tensors;
  for (const auto& [name, tensor] : step.setup.extra_trainables) tensors[name] = gradients ? tensor.grad() : tensor;
  return tensors;
}

}  // namespace evenkeel::host
