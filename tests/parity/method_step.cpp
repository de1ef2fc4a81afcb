/// Runs a method's server or client on given numbers, for comparison with the numpy reference of
/// tests/parity/reference.
/// It is a server of jobs (jobs.h).
/// JOB: {"method", "options": TOML, "sites": {name: {"experts", "in", "out", "moe_layer"}}, "moe_layers": [..],
/// "num_experts",
///       "max_top_k", "rank", "alpha", "scale_mode", "lr", "state": payload file, "fixed": payload file or null, "out":
///       file, and one of
///         "clients": [{"id", "top_k", "rank", "weight", "steps", "file"}]                          a server step
///         "client": {"id", "top_k", "rank"}, "gradients": file, "micro_batches": [{layer: {"counts", "tokens"}}],
///         "logits": file
///                                                                                          the edits of a client's
///                                                                                          step
///         "client", "moved": file of what training made of the factors                     a client's round
///         "gradient_sums": {"pooled": file, "federated": file}                             a server's start}
/// OUT of a server step: adapter/, base_delta/, extra/, memory/, to/<id>/ (what each client gets next) and
/// down/<rank>/ (what an unknown client of that rank would get); of a client's step: extra_loss (and penalty),
/// logits_grad/, extra_grad/, grad/ and theta/; of a client's round: prepared/, up/ and up_extra/, and output_scale
/// where there is one; of a start: fixed/ and adapter/. Tensors in the precision of the input.
#include <ATen/ATen.h>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "jobs.h"
#include "lora/payload.h"
#include "methods/method_registry.h"

namespace evenkeel {
namespace {

void put(TensorMap& out, const std::string& prefix, const lora::AdapterState& adapters) {
  for (const auto& [site, f] : adapters) {
    const auto add = [&](const char* name, const at::Tensor& tensor) {
      if (tensor.defined()) out[concat(prefix, site, "/", name)] = tensor.detach().contiguous();
    };
    add("a", f.a);
    add("b", f.b);
    add("core", f.core);
    add("ranks", f.ranks);
    add("scaling", at::scalar_tensor(f.scaling, at::kDouble));
  }
}

void put(TensorMap& out, const std::string& prefix, const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) out[prefix + name] = tensor.detach().contiguous();
}

lora::Sites sites_of(const Json& job) {
  lora::Sites sites;
  for (const auto& [name, site] : job.at("sites").items())
    sites[name] = {site.at("experts"), site.at("in"), site.at("out"), site.at("moe_layer")};
  return sites;
}

methods::ClientProfile profile_of(const Json& client) {
  return {.id = client.at("id"), .top_k = client.at("top_k"), .rank = client.at("rank")};
}

methods::ServerState state_of(const Json& job) {
  methods::ServerState state{.global = lora::load_payload(job.at("state").get<std::string>())};
  if (job.at("fixed").is_string()) state.common.fixed = lora::load_payload(job.at("fixed").get<std::string>()).adapters;
  return state;
}

lora::LoraScale scale_of(const Json& job) {
  return {job.at("alpha"), job.at("rank"),
          job.at("scale_mode") == "const_scale" ? lora::LoraScaleMode::kConstScale : lora::LoraScaleMode::kFixedAlpha};
}

methods::ServerView server_of(const Json& job, const lora::Sites& sites) {
  return {.sites = sites,
          .moe_layers = job.at("moe_layers").get<std::vector<std::string>>(),
          .num_experts = job.at("num_experts"),
          .max_top_k = job.at("max_top_k"),
          .rank = job.at("rank"),
          .scale = scale_of(job),
          .lr = job.at("lr"),
          .seed = 42,
          .gradient_sum = {},
          .transport = lora::TransportDtype::kAsTheyAre};  // rounding of transport is tested elsewhere
}

TensorMap server_step(const Json& job, const methods::FederatedMethod& method, const lora::Sites& sites) {
  methods::RoundView round;
  std::vector<methods::ClientUpdate> updates;
  for (const auto& client : job.at("clients")) {
    round.participants.push_back(profile_of(client));
    round.weights.push_back(client.at("weight"));
    updates.push_back(
        {round.participants.back(), lora::load_payload(client.at("file").get<std::string>()), client.at("steps")});
  }
  const auto next = method.aggregate(server_of(job, sites), state_of(job), round, updates);
  TensorMap out;
  put(out, "adapter/", next.global.adapters);
  put(out, "base_delta/", next.global.base_delta);
  put(out, "extra/", next.global.extras);
  put(out, "memory/", next.memory);
  for (const auto& client : round.participants) {
    put(out, concat("to/", client.id, "/"), method.broadcast(next, client, round).adapters);
    auto anyone = client;
    anyone.id = 1000 + client.rank;  // a client that the server does not know
    put(out, concat("down/", client.rank, "/"), method.broadcast(next, anyone, round).adapters);
  }
  return out;
}

/// Calls work(name, tensor) for the trained factors.
template <typename Work>
void for_trained(methods::LocalSetup& setup, const Work& work) {
  for (auto& [site, f] : setup.adapters) {
    if (setup.trainable == methods::Trainable::kAB) work(site + "/a", f.a);
    if (setup.trainable != methods::Trainable::kCore) work(site + "/b", f.b);
    if (setup.trainable == methods::Trainable::kCore) work(site + "/core", f.core);
  }
}

std::vector<nn::RoutingByLayer> micro_batches_of(const Json& job, const TensorMap& logits) {
  std::vector<nn::RoutingByLayer> micro_batches;
  for (const auto& routing : job.at("micro_batches")) {
    auto& by_layer = micro_batches.emplace_back();
    for (const auto& [layer, stats] : routing.items())
      by_layer[layer] = {.router_logits = logits.contains(layer) ? logits.at(layer) : at::Tensor(),
                         .counts = at::tensor(stats.at("counts").get<std::vector<int64_t>>(), at::kLong),
                         .tokens = stats.at("tokens")};
  }
  return micro_batches;
}

TensorMap client_step(const Json& job, const methods::FederatedMethod& method, const lora::Sites& sites) {
  const auto state = state_of(job);
  const auto client = profile_of(job.at("client"));
  TensorMap memory, out, logits = load_safetensors(job.at("logits").get<std::string>()).tensors;
  const auto gradients = load_safetensors(job.at("gradients").get<std::string>()).tensors;
  for (auto& [layer, scores] : logits) scores = scores.clone().requires_grad_(true);
  const methods::ClientView view{
      .client = client, .sites = sites, .common = state.common, .scale = scale_of(job), .memory = memory};
  auto setup = method.prepare(state.global, view);
  for_trained(setup,
              [](const std::string&, at::Tensor& t) { t.requires_grad_(true), t.mutable_grad() = at::zeros_like(t); });
  for (auto& [name, t] : setup.extra_trainables) t.requires_grad_(true);
  const auto micro_batches = micro_batches_of(job, logits);
  methods::Metrics metrics;
  const methods::StepView step{view, state.global, setup, micro_batches, job.at("lr"), metrics};
  at::Tensor extra;
  for (const auto& part : {method.extra_loss(step), method.penalty(step)})
    if (part.defined()) extra = extra.defined() ? extra + part : part;
  if (extra.defined()) {
    out["extra_loss"] = extra.detach().to(at::kDouble).reshape({1});
    extra.backward();
    for (const auto& [layer, scores] : logits)
      if (scores.grad().defined()) out["logits_grad/" + layer] = scores.grad();
    for_trained(setup, [&](const std::string& name, at::Tensor& t) { out["extra_grad/" + name] = t.grad().clone(); });
    for (const auto& [name, t] : setup.extra_trainables)
      if (t.grad().defined()) out["extra_grad/" + name] = t.grad().clone();
  }
  for_trained(setup, [&](const std::string& name, at::Tensor& t) { t.mutable_grad() = gradients.at(name).clone(); });
  method.edit_gradients(step);
  for_trained(setup, [&](const std::string& name, at::Tensor& t) { out["grad/" + name] = t.grad().clone(); });
  method.edit_parameters(step);
  for_trained(setup, [&](const std::string& name, at::Tensor& t) { out["theta/" + name] = t.detach().contiguous(); });
  return out;
}

TensorMap client_round(const Json& job, const methods::FederatedMethod& method, const lora::Sites& sites) {
  const auto state = state_of(job);
  const auto client = profile_of(job.at("client"));
  TensorMap memory, out;
  const methods::ClientView view{
      .client = client, .sites = sites, .common = state.common, .scale = scale_of(job), .memory = memory};
  auto setup = method.prepare(state.global, view);
  put(out, "prepared/", lora::clone(setup.adapters));
  if (setup.router.output_scale.defined()) out["output_scale"] = setup.router.output_scale;
  const auto moved = load_safetensors(job.at("moved").get<std::string>()).tensors;
  for_trained(setup, [&](const std::string& name, at::Tensor& t) { t = moved.at(name).clone(); });
  const auto sent = method.upload(state.global, setup, {}, view);
  put(out, "up/", sent.adapters);
  put(out, "up_extra/", sent.extras);
  return out;
}

TensorMap start(const Json& job, const methods::FederatedMethod& method, const lora::Sites& sites) {
  auto server = server_of(job, sites);
  server.gradient_sum = [&](const std::string& site, const methods::GradientSample& sample) {
    const auto& file = job.at("gradient_sums").at(sample.from == methods::SampleFrom::kPooled ? "pooled" : "federated");
    return load_safetensors(file.get<std::string>()).tensors.at(site);
  };
  const auto state = method.initialize(server);
  TensorMap out;
  put(out, "fixed/", state.common.fixed);
  put(out, "adapter/", state.global.adapters);
  return out;
}

TensorMap work(const Json& job, const methods::FederatedMethod& method, const lora::Sites& sites) {
  if (job.contains("clients")) return server_step(job, method, sites);
  if (job.contains("moved")) return client_round(job, method, sites);
  if (job.contains("gradient_sums")) return start(job, method, sites);
  return client_step(job, method, sites);
}

void run(const fs::path& file) {
  const Json job = load_json(file);
  const auto sites = sites_of(job);
  const auto method = methods::find_method(job.at("method").get<std::string>())
                          .make(config::Table::parse(job.at("options").get<std::string>(), "options"));
  save_safetensors(job.at("out").get<std::string>(), work(job, *method, sites));
}

}  // namespace
}  // namespace evenkeel

int main() { return evenkeel::serve_jobs(evenkeel::run); }
