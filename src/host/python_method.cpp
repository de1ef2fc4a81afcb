#include "host/python_method.h"

#include <ATen/ATen.h>

#include "host/call.h"
#include "host/check_setup.h"

namespace evenkeel::host {
namespace {

using methods::ClientProfile, methods::ClientView, methods::FederatedMethod, methods::LocalSetup, methods::RoundView,
    methods::ServerState, methods::ServerView, methods::StepView, methods::Uploads;

constexpr const char* kStep = "host.step";  // in LocalSetup::notes: number of optimiser steps done in the round

std::string client_text(const ClientProfile& client) {
  return client.id < 0 ? std::string("an evaluation") : concat("client ", client.id);
}

int64_t steps_done(const LocalSetup& setup) {
  const auto found = setup.notes.find(kStep);
  return found == setup.notes.end() ? 0 : found->second.item<int64_t>();
}

template <typename T>
std::shared_ptr<const T> shared(T value) {
  return std::make_shared<const T>(std::move(value));
}

/// Takes the metrics that a hook has added.
void take_metrics(const JsonView& result, methods::Metrics& metrics) {
  for (const auto& entry : result.at("metrics").items())
    metrics.add(entry.at(size_t{0}).string(), entry.at(1).number(), entry.at(2).number());
}

/// Takes the client's memory and the notes of the round if the host has read or set any. The number of steps stays.
void take_state(const Call& hook, const JsonView& value, const StepView& step) {
  hook.results().take_memory(value.at("view"), step.view);
  const auto given = value.find("notes");
  if (!given) return;
  auto notes = hook.results().tensors(*given);
  notes.erase(kStep);
  if (const auto steps = step.setup.notes.find(kStep); steps != step.setup.notes.end()) notes.insert(*steps);
  step.setup.notes = std::move(notes);
}

}  // namespace

PythonMethod::PythonMethod(std::shared_ptr<const methods::MethodDescription> description, std::shared_ptr<Host> host,
                           std::string options)
    : DescribedMethod(std::move(description)), host_(std::move(host)), options_(std::move(options)) {
  const std::scoped_lock lock(host_->mutex());
  host_->object(options_);
}

Call PythonMethod::call(const char* hook, const lora::Sites& sites, const std::string& about) const {
  return Call(*host_, description(), options_, hook, sites, about);
}

// --- server half ---

ServerState PythonMethod::initialize(const ServerView& server) const {
  if (!overrides("initialize")) return base().initialize(server);
  Call hook = call("initialize", server.sites);
  SharedState begun;
  const auto of_base = [&](const JsonView&) {
    begun = shared(base().initialize(server));
    return to_host(hook.objects(), begun);
  };
  const auto result = hook.run({{"server", to_host(hook.objects(), server, -1)}}, of_base);
  return hook.results().state(result, begun ? begun->common : methods::Common());
}

lora::Payload PythonMethod::broadcast(const ServerState& state, const ClientProfile& client,
                                      const RoundView& round) const {
  if (!overrides("broadcast")) return base().broadcast(state, client, round);
  const auto sites = sites_of(state);
  Call hook = call("broadcast", sites, client_text(client));
  const auto of_base = [&](const JsonView& given) {
    const auto results = hook.results();
    return to_host(hook.objects(), shared(base().broadcast(results.state(given.at("state"), state.common),
                                                           results.client(given.at("client"), client),
                                                           results.round(given.at("round"), round))));
  };
  return hook.results().payload(hook.run({{"state", to_host(hook.objects(), SharedState(borrowed(state)))},
                                          {"client", to_host(client)},
                                          {"round", to_host(round)}},
                                         of_base));
}

void PythonMethod::check_upload(const lora::Payload& upload, const ClientProfile& client) const {
  if (!overrides("check_upload")) return base().check_upload(upload, client);
  const auto sites = sites_of(upload);
  Call hook = call("check_upload", sites, client_text(client));
  const auto of_base = [&](const JsonView& given) -> OrderedJson {
    const auto results = hook.results();
    base().check_upload(results.payload(given.at("upload")), results.client(given.at("client"), client));
    return nullptr;
  };
  hook.run({{"upload", to_host(hook.objects(), SharedPayload(borrowed(upload)))}, {"client", to_host(client)}},
           of_base);
}

ServerState PythonMethod::aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                                    const Uploads& uploads) const {
  if (!overrides("aggregate")) return base().aggregate(server, state, round, uploads);
  Call hook = call("aggregate", server.sites, concat("round ", round.round + 1));
  const auto of_base = [&](const JsonView& given) {
    return to_host(hook.objects(),
                   shared(base().aggregate(server, hook.results().state(given.at("state"), state.common),
                                           hook.results().round(given.at("round"), round), uploads)));
  };
  const auto result = hook.run({{"server", to_host(hook.objects(), server, round.round)},
                                {"state", to_host(hook.objects(), SharedState(borrowed(state)))},
                                {"round", to_host(round)},
                                {"uploads", to_host(hook.objects(), uploads, round, description().needs_individuals)}},
                               of_base);
  return hook.results().state(result, state.common);
}

TensorMap PythonMethod::diagnostics(const ServerState& state) const {
  if (!overrides("diagnostics")) return base().diagnostics(state);
  const auto sites = sites_of(state);
  Call hook = call("diagnostics", sites);
  const auto of_base = [&](const JsonView& given) {
    ServerState made;
    made.memory = base().diagnostics(hook.results().state(given.at("state"), state.common));
    return to_host(hook.objects(), shared(std::move(made)));
  };
  return hook.results().tensors(hook.run({{"state", to_host(hook.objects(), SharedState(borrowed(state)))}}, of_base));
}

lora::AdapterState PythonMethod::pseudo_gradients(const ServerState& state) const {
  if (!overrides("pseudo_gradients")) return base().pseudo_gradients(state);
  const auto sites = sites_of(state);
  Call hook = call("pseudo_gradients", sites);
  const auto of_base = [&](const JsonView& given) {
    const auto of = hook.results().state(given.at("state"), state.common);
    return to_host(hook.objects(), shared(lora::Payload{.adapters = base().pseudo_gradients(of)}));
  };
  return hook.results().adapters(hook.run({{"state", to_host(hook.objects(), SharedState(borrowed(state)))}}, of_base));
}

// --- client half ---

LocalSetup PythonMethod::prepare(const lora::Payload& download, const ClientView& view) const {
  const bool is_own = overrides("prepare");
  auto setup = is_own ? prepared_by_host(download, view) : base().prepare(download, view);
  check_setup(setup, view.client.trains,
              concat(is_own ? "hook prepare of " : "prepare of the base method of ", client_text(view.client)));
  if (overrides("extra_loss")) setup.router.records_logits = true;  // a loss may read them
  return setup;
}

LocalSetup PythonMethod::prepared_by_host(const lora::Payload& download, const ClientView& view) const {
  Call hook = call("prepare", view.sites, client_text(view.client));
  const auto of_base = [&](const JsonView& given) {
    hook.results().take_memory(given.at("view"), view);
    return to_host(hook.objects(), shared(base().prepare(hook.results().payload(given.at("download")), view)));
  };
  const auto result = hook.run({{"download", to_host(hook.objects(), SharedPayload(borrowed(download)))},
                                {"view", to_host(hook.objects(), view)}},
                               of_base);
  hook.results().take_memory(result.at("view"), view);
  auto setup = hook.results().setup(result.at("setup"));
  const auto top_k = setup.router.top_k, most = view.client.top_k;
  EK_CHECK(most == 0 || (top_k >= 1 && top_k <= most), kConfig, "hook prepare of ", client_text(view.client),
           ": top_k is ", top_k, ", allowed: 1 to ", most, ", the client's budget");
  return setup;
}

at::Tensor PythonMethod::loss(const char* hook_name, const StepView& step,
                              at::Tensor (FederatedMethod::*of_base_method)(const StepView&) const) const {
  Call hook = call(hook_name, step.view.sites, client_text(step.view.client));
  const auto of_base = [&](const JsonView& given) -> OrderedJson {
    take_state(hook, given.at("step"), step);
    return hook.objects().add((base().*of_base_method)(step));
  };
  const auto result = hook.run({{"step", to_host(hook.objects(), step, steps_done(step.setup))}}, of_base);
  take_state(hook, result, step);
  take_metrics(result, step.metrics);
  return hook.results().loss(result.at("loss"), step);
}

at::Tensor PythonMethod::extra_loss(const StepView& step) const {
  if (!overrides("extra_loss")) return base().extra_loss(step);
  return loss("extra_loss", step, &FederatedMethod::extra_loss);
}

at::Tensor PythonMethod::penalty(const StepView& step) const {
  if (!overrides("penalty")) return base().penalty(step);
  return loss("penalty", step, &FederatedMethod::penalty);
}

void PythonMethod::edit(const char* hook_name, const StepView& step,
                        void (FederatedMethod::*of_base_method)(const StepView&) const) const {
  Call hook = call(hook_name, step.view.sites, client_text(step.view.client));
  const auto of_base = [&](const JsonView& given) -> OrderedJson {
    hook.results().write_back(given.at("step"), step);
    take_state(hook, given.at("step"), step);
    (base().*of_base_method)(step);
    return nullptr;  // the host reads again what it has read
  };
  const auto result = hook.run({{"step", to_host(hook.objects(), step, steps_done(step.setup))}}, of_base);
  hook.results().write_back(result.at("step"), step);
  take_state(hook, result, step);
  take_metrics(result, step.metrics);
}

void PythonMethod::edit_gradients(const StepView& step) const {
  if (!overrides("edit_gradients")) return base().edit_gradients(step);
  edit("edit_gradients", step, &FederatedMethod::edit_gradients);
}

void PythonMethod::edit_parameters(const StepView& step) const {
  if (overrides("edit_parameters"))
    edit("edit_parameters", step, &FederatedMethod::edit_parameters);
  else
    base().edit_parameters(step);
  step.setup.notes[kStep] = at::scalar_tensor(steps_done(step.setup) + 1, at::kLong);
}

lora::Payload PythonMethod::upload(const lora::Payload& download, const LocalSetup& setup,
                                   const nn::RoutingByLayer& counts, const ClientView& view) const {
  if (!overrides("upload")) return base().upload(download, setup, counts, view);
  Call hook = call("upload", view.sites, client_text(view.client));
  const auto of_base = [&](const JsonView& given) {
    hook.results().take_memory(given.at("view"), view);
    const auto results = hook.results();
    return to_host(hook.objects(),
                   shared(base().upload(results.payload(given.at("download")), results.setup(given.at("setup")),
                                        results.counts(given.at("counts"), counts), view)));
  };
  const auto result = hook.run({{"download", to_host(hook.objects(), SharedPayload(borrowed(download)))},
                                {"setup", to_host(hook.objects(), SharedSetup(borrowed(setup)))},
                                {"counts", to_host(hook.objects(), counts)},
                                {"view", to_host(hook.objects(), view)}},
                               of_base);
  hook.results().take_memory(result.at("view"), view);
  return hook.results().payload(result.at("payload"));
}

}  // namespace evenkeel::host
