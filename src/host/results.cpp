#include "host/results.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/format/record.h"
#include "host/arguments.h"

namespace evenkeel::host {
namespace {

std::string shape_text(at::IntArrayRef shape) { return concat("[", join(shape), "]"); }

/// Checks that a tensor of floats holds finite numbers only.
void check_finite(const at::Tensor& tensor, const JsonView& place) {
  if (tensor.defined() && tensor.is_floating_point() && !lora::is_finite(tensor))
    fail(kNumeric, place.place(), " holds a value that is not finite");
}

/// Checks the shape and the numbers of a factor. \param shape  entries of 0 are not checked
void check_factor(const at::Tensor& factor, std::string_view name, const std::vector<int64_t>& shape,
                  const JsonView& site) {
  if (!factor.defined()) return;
  site.require(factor.scalar_type() == at::kFloat, ".", name, " is ", at::toString(factor.scalar_type()),
               ", expected float32: array.astype(numpy.float32)");
  const auto sizes = factor.sizes();
  const bool fits = std::equal(sizes.begin(), sizes.end(), shape.begin(), shape.end(),
                               [](int64_t size, int64_t expected) { return expected == 0 || size == expected; });
  site.require(fits, ".", name, " has shape ", shape_text(sizes), ", expected ", shape_text(shape));
  EK_CHECK(lora::is_finite(factor), kNumeric, site.place(), ".", name, " holds a value that is not finite");
}

/// Checks the ranks of the experts of a stack, of which A and B have checked shapes.
void check_ranks(const lora::LoraFactors& factors, const JsonView& site) {
  const auto& ranks = factors.ranks;
  if (!ranks.defined()) return;
  site.require(factors.a.defined() && factors.b.defined() && factors.a.dim() == 3,
               ".ranks are of a site without a stack of A and B, allowed: None");
  const int64_t experts = factors.a.size(0), rank = factors.rank();
  site.require(ranks.scalar_type() == at::kLong && ranks.dim() == 1 && ranks.size(0) == experts, ".ranks has shape ",
               shape_text(ranks.sizes()), " and type ", at::toString(ranks.scalar_type()), ", expected [", experts,
               "] and int64");
  if (experts == 0) return;
  const auto least = ranks.min().item<int64_t>(), most = ranks.max().item<int64_t>();
  site.require(least >= 0 && most <= rank, ".ranks has values of ", least, " to ", most, ", allowed: 0 to ", rank,
               ", the rank of A and B");
}

template <typename Table>
auto value_named(const Table& table, const JsonView& name) {
  for (const auto& entry : table)
    if (entry.name == name.string()) return entry.value;
  name.refuse(" is \"", name.string(), "\", which is no value of it");
}

nn::GateNorm gate_norm_in(const JsonView& name) { return value_named(names(nn::GateNorm{}), name); }

/// Checks that a group of a step has every tensor that the step has. One that a hook took out would train on unchanged.
void require_all(const JsonView& group, const auto& own) {
  for (const auto& [name, tensors] : own) group.require(group.has(name), " lacks ", name, ": edit tensors in place");
}

/// Calls `use` with each tensor of a step that the host has loaded, and its place in shared memory.
template <typename Use>
void for_each_loaded(const JsonView& groups, const methods::StepView& step, const Use& use) {
  for (const auto& [name, gradients] : {std::pair{"parameters", false}, {"gradients", true}}) {
    const auto group = groups.find(name);
    if (!group) continue;
    const auto own = trained_factors(step, gradients);
    require_all(*group, own);
    for (const auto& entry : group->members()) {
      const auto found = own.find(entry.key());
      entry.require(found != own.end(), " is no adapted weight of the step");
      for (size_t i = 0; i < lora::kFactors.size(); ++i) {
        const auto& tensor = found->second.*lora::kFactors[i].tensor;
        entry.require(tensor.defined() || entry.at(i).json().is_null(), ".", lora::kFactors[i].name,
                      " is not trained, expected None");
        if (tensor.defined()) use(tensor, entry.at(i));
      }
    }
  }
  for (const auto& [name, gradients] : {std::pair{"extra_parameters", false}, {"extra_gradients", true}}) {
    const auto group = groups.find(name);
    if (!group) continue;
    auto own = trained_extras(step, gradients);
    std::erase_if(own, [](const auto& entry) { return !entry.second.defined(); });
    require_all(*group, own);
    for (const auto& entry : group->members()) {
      const auto found = own.find(entry.key());
      entry.require(found != own.end() && found->second.defined(), " is no trained tensor of the step");
      use(found->second, entry);
    }
  }
}

void check_equal_shape(const at::Tensor& sent, const at::Tensor& own, const JsonView& place) {
  place.require(sent.defined(), " is None, expected an array of shape ", shape_text(own.sizes()));
  place.require(sent.sizes() == own.sizes() && sent.scalar_type() == own.scalar_type(), " has shape ",
                shape_text(sent.sizes()), " and type ", at::toString(sent.scalar_type()), ", expected ",
                shape_text(own.sizes()), " and ", at::toString(own.scalar_type()));
}

/// Adds up terms of which the gradients are given.
class Terms {
 public:
  explicit Terms(const SegmentsById& segments) : incoming_(segments) {}

  void add(const at::Tensor& term) {
    if (term.defined()) sum_ = sum_.defined() ? sum_ + term : term;
  }
  /// Adds sum(tensor * gradient), whose gradient with respect to the tensor is the one at `place`.
  void add(const at::Tensor& tensor, const JsonView& place) {
    if (place.json().is_null()) return;
    place.require(tensor.defined(), " is the gradient of a tensor that is not trained");
    const auto gradient = incoming_.view(place);
    check_equal_shape(gradient, tensor, place);
    check_finite(gradient, place);
    add((tensor * gradient.clone().to(tensor.device())).sum());
  }
  void add(const lora::AdapterState& parameters, const JsonView& group) {
    for (const auto& entry : group.members()) {
      const auto found = parameters.find(entry.key());
      entry.require(found != parameters.end(), " is no adapted weight of the step");
      for (size_t i = 0; i < lora::kFactors.size(); ++i) add(found->second.*lora::kFactors[i].tensor, entry.at(i));
    }
  }
  void add(const TensorMap& tensors, const JsonView& group) {
    for (const auto& entry : group.members()) {
      const auto found = tensors.find(entry.key());
      entry.require(found != tensors.end(), " is no trained tensor or router of the step");
      add(found->second, entry);
    }
  }
  at::Tensor sum() const { return sum_; }

 private:
  Incoming incoming_;
  at::Tensor sum_;
};

/// Adds the sites of adapters, as far as the factors show their lengths.
void add_sites(const lora::AdapterState& adapters, lora::Sites& sites) {
  for (const auto& [name, factors] : adapters) {
    auto& site = sites[name];
    const auto* known = factors.a.defined() ? &factors.a : factors.b.defined() ? &factors.b : &factors.core;
    if (known->defined() && known->dim() == 3) site.experts = known->size(0);
    if (factors.a.defined()) site.in = factors.a.size(-1);
    if (factors.b.defined()) site.out = factors.b.size(-2);
  }
}

bool are_equal(const at::Tensor& one, const at::Tensor& other) {
  return one.scalar_type() == other.scalar_type() && at::equal(one, other);
}

/// Makes one tensor of a trained tensor and its place in the router, unless a hook has given them different values.
/// \param before  the tensor that both were
void unite(const at::Tensor& before, at::Tensor& trained, at::Tensor& routed) {
  if (are_equal(routed, before) || are_equal(routed, trained))
    routed = trained;
  else if (are_equal(trained, before))
    trained = routed;
}

/// Unites the tensors that were one in the setup of the base method. The host gets such a tensor once for each group.
void unite_trained(const methods::LocalSetup& before, methods::LocalSetup& setup) {
  auto& router = setup.router;
  for (auto& [name, trained] : setup.extra_trainables) {
    const auto known = before.extra_trainables.find(name);
    if (known == before.extra_trainables.end()) continue;
    for (auto& [layer, phi] : router.modulation) {
      const auto found = before.router.modulation.find(layer);
      if (found != before.router.modulation.end() && found->second.is_same(known->second))
        unite(known->second, trained, phi);
    }
    if (before.router.output_scale.is_same(known->second)) unite(known->second, trained, router.output_scale);
  }
}

TensorMap newest_logits(const methods::StepView& step) {
  TensorMap logits;
  if (step.micro_batches.empty()) return logits;
  for (const auto& [layer, stats] : step.micro_batches.back())
    if (stats.router_logits.defined()) logits[layer] = stats.router_logits;
  return logits;
}

}  // namespace

void Results::check(const std::string& name, const lora::LoraFactors& factors, const JsonView& entry) const {
  const auto found = sites_.find(name);
  entry.require(found != sites_.end(), " is no adapted weight of the model");
  const auto& site = found->second;
  entry.require(factors.a.defined() || factors.b.defined() || factors.core.defined(),
                " has no factor, allowed: a, b, core");
  for (const auto& factor : lora::kFactors)
    check_factor(factors.*factor.tensor, factor.name, lora::shape_of(site, factor, factors.rank()), entry);
  check_ranks(factors, entry);
  entry.require(std::isfinite(factors.scaling), " has a scaling that is not finite");
}

lora::AdapterState Results::adapters(const JsonView& group) const {
  Incoming incoming(segments_);
  auto adapters = incoming.adapters(group);
  for (const auto& entry : group.members()) check(entry.key(), adapters.at(entry.key()), entry);
  return adapters;
}

TensorMap Results::tensors(const JsonView& group) const {
  Incoming incoming(segments_);
  auto tensors = incoming.tensors(group);
  for (const auto& entry : group.members()) {
    entry.require(tensors.at(entry.key()).defined(), " is None, expected an array");
    check_finite(tensors.at(entry.key()), entry);
  }
  return tensors;
}

at::Tensor Results::tensor(const JsonView& place) const {
  auto tensor = Incoming(segments_).copy(place);
  check_finite(tensor, place);
  return tensor;
}

lora::Payload Results::payload(const JsonView& value) const {
  lora::Payload payload;
  if (const auto of = value.find("of")) payload = *objects_.at<SharedPayload>(*of);
  const auto groups = value.at("groups");
  if (const auto group = groups.find("adapters")) payload.adapters = adapters(*group);
  if (const auto group = groups.find("extras")) payload.extras = tensors(*group);
  if (const auto group = groups.find("base_delta")) payload.base_delta = adapters(*group);
  return payload;
}

methods::ServerState Results::state(const JsonView& value, const methods::Common& common) const {
  methods::ServerState state{.common = common};
  const auto of = value.find("of");
  if (of) state = *objects_.at<SharedState>(*of);
  const auto groups = value.at("groups");
  if (const auto group = groups.find("adapters")) state.global.adapters = adapters(*group);
  if (const auto group = groups.find("extras")) state.global.extras = tensors(*group);
  if (const auto group = groups.find("base_delta")) state.global.base_delta = adapters(*group);
  if (const auto group = groups.find("memory")) state.memory = tensors(*group);
  if (const auto group = groups.find("fixed"); group && (of || group->size() > 0))
    state.common.fixed = adapters(*group);
  return state;
}

methods::LocalSetup Results::setup(const JsonView& value) const {
  const auto& before = *objects_.at<SharedSetup>(value.at("of"));
  auto setup = before;
  setup.trainable = value_named(kTrainables, value.at("trainable"));
  setup.router.top_k = value.at("top_k").integer(0);
  setup.router.num_candidates = value.at("num_candidates").integer(0);
  setup.router.mode = value_named(kModulations, value.at("mode"));
  setup.router.raw_gates = value.at("raw_gates").flag();
  setup.router.gate_norm = gate_norm_in(value.at("gate_norm"));
  const auto groups = value.at("groups");
  if (const auto group = groups.find("adapters")) setup.adapters = adapters(*group);
  if (const auto group = groups.find("notes")) setup.notes = tensors(*group);
  Incoming shared(segments_);  // phi that is trained is the same tensor in both groups
  for (const auto& [name, tensors] :
       {std::pair{"extra_trainables", &setup.extra_trainables}, {"modulation", &setup.router.modulation}})
    if (const auto group = groups.find(name)) {
      this->tensors(*group);  // checked
      *tensors = shared.tensors(*group);
    }
  unite_trained(before, setup);
  return setup;
}

methods::ClientProfile Results::client(const JsonView& value, const methods::ClientProfile& own) const {
  auto client = record::read<methods::ClientProfile>(value);
  client.first_round = own.first_round;
  client.end_round = own.end_round;
  return client;
}

nn::RoutingByLayer Results::counts(const JsonView& value, const nn::RoutingByLayer& own) const {
  nn::RoutingByLayer routing;
  const auto sent = tensors(value.at("counts"));
  for (const auto& place : value.at("counts").members()) {
    const auto& layer = place.key();
    const auto found = own.find(layer);
    place.require(found != own.end(), " is no mixture layer whose routing was counted");
    check_equal_shape(sent.at(layer), found->second.counts, place);
    routing[layer] = {.router_logits = {},
                      .counts = sent.at(layer).to(found->second.counts.device()),
                      .tokens = value.at("tokens").at(layer).integer(0)};
  }
  return routing;
}

methods::RoundView Results::round(const JsonView& value, const methods::RoundView& own) const {
  methods::RoundView round{.round = value.at("round").integer(),
                           .mean_top_k_of_all = own.mean_top_k_of_all,
                           .equal_weights = own.equal_weights};
  for (const auto& client : value.at("participants").items())
    round.participants.push_back(record::read<methods::ClientProfile>(client));
  for (const auto& weight : value.at("weights").items()) round.weights.push_back(weight.number());
  return round;
}

at::Tensor Results::loss(const JsonView& value, const methods::StepView& step) const {
  if (value.json().is_null()) return {};
  Terms terms(segments_);
  for (const auto& term : value.at("terms").items()) terms.add(objects_.at<at::Tensor>(term));
  const auto groups = value.at("groups");
  terms.add(trained_factors(step, false), groups.at("of_adapters"));
  terms.add(trained_extras(step, false), groups.at("of_extras"));
  terms.add(newest_logits(step), groups.at("of_logits"));
  return terms.sum();
}

void Results::write_back(const JsonView& value, const methods::StepView& step) const {
  const Incoming incoming(segments_);
  for_each_loaded(value.at("groups"), step, [&](const at::Tensor& own, const JsonView& place) {
    const auto sent = incoming.view(place);
    check_equal_shape(sent, own, place);
    if (lora::is_finite(own.detach().cpu())) check_finite(sent, place);
    own.detach().copy_(sent);
  });
}

void Results::take_memory(const JsonView& view_value, const methods::ClientView& view) const {
  if (const auto memory = view_value.find("memory")) view.memory = tensors(*memory);
}

lora::Sites sites_of(const methods::ServerState& state) {
  lora::Sites sites;
  for (const auto* adapters :
       {&state.common.base_change, &state.global.base_delta, &state.common.fixed, &state.global.adapters})
    add_sites(*adapters, sites);
  return sites;
}

lora::Sites sites_of(const lora::Payload& payload) {
  lora::Sites sites;
  for (const auto* adapters : {&payload.base_delta, &payload.adapters}) add_sites(*adapters, sites);
  return sites;
}

}  // namespace evenkeel::host
