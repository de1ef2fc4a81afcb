#include "host/arguments.h"

#include "base/format/record.h"

namespace evenkeel::host {
namespace {

OrderedJson scale_json(const lora::LoraScale& scale) {
  return {{"rank", scale.rank}, {"alpha", scale.alpha}, {"mode", config::name_of(scale.mode)}};
}

template <typename Table, typename E>
std::string_view named(const Table& table, E value) {
  for (const auto& entry : table)
    if (entry.value == value) return entry.name;
  return "?";
}

OrderedJson tokens_json(const nn::RoutingByLayer& routing) {
  OrderedJson tokens = OrderedJson::object();
  for (const auto& [layer, stats] : routing) tokens[layer] = stats.tokens;
  return tokens;
}

}  // namespace

OrderedJson to_host(const methods::ClientProfile& client) { return record::write(client); }

OrderedJson to_host(const methods::RoundView& round) {
  OrderedJson participants = OrderedJson::array();
  for (const auto& client : round.participants) participants.push_back(to_host(client));
  return {{"round", round.round}, {"participants", std::move(participants)}, {"weights", round.weights}};
}

OrderedJson to_host(const lora::Sites& sites) {
  OrderedJson all = OrderedJson::object();
  for (const auto& [name, site] : sites)
    all[name] = {site.experts, site.in, site.out, site.moe_layer, static_cast<int>(site.role)};
  return all;
}

OrderedJson to_host(Objects& objects, const methods::ServerView& server, int64_t round) {
  return {{"of", objects.add(&server)},
          {"round", round},
          {"moe_layers", server.moe_layers},
          {"num_experts", server.num_experts},
          {"max_top_k", server.max_top_k},
          {"rank", server.rank},
          {"scale", scale_json(server.scale)},
          {"lr", server.lr},
          {"seed", server.seed},
          {"transport", config::name_of(server.transport)}};
}

OrderedJson to_host(Objects& objects, const methods::ClientView& view) {
  return {{"of", objects.add(&view)},
          {"client", to_host(view.client)},
          {"scale", scale_json(view.scale)},
          {"gate_norm", config::name_of(view.gate_norm)},
          {"round", view.round},
          {"seed", view.seed}};
}

OrderedJson to_host(Objects& objects, const methods::Uploads& uploads, const methods::RoundView& round, bool each) {
  OrderedJson list = OrderedJson::array();
  if (each)
    for (const auto& update : uploads.each())
      list.push_back({{"of", objects.add(&update)}, {"client", to_host(update.client)}, {"steps", update.steps}});
  return {{"of", objects.add(&uploads)},
          {"size", uploads.size()},
          {"weights", round.weights},
          {"each", each},
          {"list", list}};
}

OrderedJson to_host(Objects& objects, const nn::RoutingByLayer& counts) {
  return {{"of", objects.add(&counts)}, {"tokens", tokens_json(counts)}};
}

OrderedJson to_host(Objects& objects, const SharedPayload& payload) { return {{"of", objects.add(payload)}}; }

OrderedJson to_host(Objects& objects, const SharedState& state) {
  return {{"of", objects.add(state)}, {"round", state->round}};
}

OrderedJson to_host(Objects& objects, const SharedSetup& setup) {
  const auto& router = setup->router;
  return {{"of", objects.add(setup)},
          {"trainable", named(kTrainables, setup->trainable)},
          {"top_k", router.top_k},
          {"gate_norm", config::name_of(router.gate_norm)},
          {"num_candidates", router.num_candidates},
          {"mode", named(kModulations, router.mode)},
          {"raw_gates", router.raw_gates}};
}

OrderedJson to_host(Objects& objects, const methods::StepView& step, int64_t number) {
  OrderedJson tokens = OrderedJson::array();
  for (const auto& routing : step.micro_batches) tokens.push_back(tokens_json(routing));
  return {{"of", objects.add(&step)},
          {"step", number},
          {"lr", step.lr},
          {"tokens", std::move(tokens)},
          {"view", to_host(objects, step.view)},
          {"download", to_host(objects, borrowed(step.download))},
          {"setup", to_host(objects, SharedSetup(borrowed(step.setup)))}};
}

}  // namespace evenkeel::host
