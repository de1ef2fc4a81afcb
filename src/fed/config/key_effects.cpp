#include "fed/config/key_effects.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/plain/error.h"

namespace evenkeel::fed {
namespace {

using enum KeyEffect;

constexpr std::array kClasses{
    KeyClass{"name", kNone},
    KeyClass{"seed", kSeed},
    KeyClass{"threads", kByRecord},
    KeyClass{"model.path", kByRecord},
    KeyClass{"model.dtype", kByRecord},
    KeyClass{"model.compute_dtype", kByRecord},
    KeyClass{"model.base_format", kFunction},
    KeyClass{"model.base_cache", kNone},
    KeyClass{"model.device", kFunction},
    KeyClass{"model.engine", kFunction},
    KeyClass{"model.graphs", kFunction},
    KeyClass{"model.cuda_kernels", kFunction},
    KeyClass{"model.products.expert_forward", kByRecord},
    KeyClass{"model.products.expert_backward", kByRecord},
    KeyClass{"model.products.linear_forward", kByRecord},
    KeyClass{"model.products.linear_backward", kByRecord},
    KeyClass{"lora.rank", kFunction},
    KeyClass{"lora.alpha", kFunction},
    KeyClass{"lora.lora_scale_mode", kFunction},
    KeyClass{"lora.targets", kFunction},
    KeyClass{"lora.router_lora", kFunction},
    KeyClass{"lora.init", kSetting},
    KeyClass{"data.task", kSetting},
    KeyClass{"data.path", kByRecord},
    KeyClass{"data.template", kFunction},
    KeyClass{"data.cutoff", kFunction},
    KeyClass{"data.mask_prompt", kFunction},
    KeyClass{"data.chat_template", kFunction},
    KeyClass{"data.date", kFunction},
    KeyClass{"data.limit", kSetting},
    KeyClass{"data.partition.kind", kSetting},
    KeyClass{"data.partition.alpha", kSetting},
    KeyClass{"data.partition.key", kSetting},
    KeyClass{"data.partition.scheme", kSetting},
    KeyClass{"data.partition.share", kSetting},
    KeyClass{"data.partition.groups", kSetting},
    KeyClass{"data.telequad.split", kSetting},
    KeyClass{"data.telequad.split_seed", kSetting},
    KeyClass{"data.telequad.train_share", kSetting},
    KeyClass{"data.telequad.impossible", kSetting},
    KeyClass{"data.files.train", kSetting},
    KeyClass{"data.files.test", kSetting},
    KeyClass{"data.files.held_out", kSetting},
    KeyClass{"data.files.split_seed", kSetting},
    KeyClass{"data.files.format", kFunction},
    KeyClass{"data.files.strict", kSetting},
    KeyClass{"data.files.score", kFunction},
    KeyClass{"data.files.options", kFunction},
    KeyClass{"data.files.ignore", kFunction},
    KeyClass{"data.files.label", kSetting},
    KeyClass{"data.files.<name>.train", kSetting},
    KeyClass{"data.files.<name>.test", kSetting},
    KeyClass{"data.files.<name>.held_out", kSetting},
    KeyClass{"data.files.<name>.split_seed", kSetting},
    KeyClass{"data.files.<name>.format", kFunction},
    KeyClass{"data.files.<name>.strict", kSetting},
    KeyClass{"data.files.<name>.score", kFunction},
    KeyClass{"data.files.<name>.options", kFunction},
    KeyClass{"data.files.<name>.ignore", kFunction},
    KeyClass{"data.files.<name>.label", kSetting},
    KeyClass{"clients.count", kSetting},
    KeyClass{"clients.participation", kSetting},
    KeyClass{"clients.parallel", kNone},
    KeyClass{"clients.budgets", kSetting},
    KeyClass{"clients.budgets.values", kSetting},
    KeyClass{"clients.budgets.shares", kSetting},
    KeyClass{"clients.budgets.deal", kSetting},
    KeyClass{"clients.ranks", kSetting},
    KeyClass{"clients.ranks.values", kSetting},
    KeyClass{"clients.ranks.shares", kSetting},
    KeyClass{"clients.ranks.deal", kSetting},
    KeyClass{"clients.profiles", kByRecord},
    KeyClass{"clients.profiles.values", kByRecord},
    KeyClass{"clients.profiles.shares", kByRecord},
    KeyClass{"clients.profiles.deal", kByRecord},
    KeyClass{"clients.deadline", kSetting},
    KeyClass{"clients.quorum", kSetting},
    KeyClass{"clients.most_examples", kSetting},
    KeyClass{"clients.update_ratio", kSetting},
    KeyClass{"clients.update_norm", kSetting},
    KeyClass{"clients.bound_simulated", kSetting},
    KeyClass{"clients.start", kSetting},
    KeyClass{"clients.assign", kNone},
    KeyClass{"clients.on_change", kNone},
    KeyClass{"clients.client[].name", kNone},
    KeyClass{"clients.client[].key", kNone},
    KeyClass{"clients.client[].data", kSetting},
    KeyClass{"clients.client[].test", kSetting},
    KeyClass{"clients.client[].held_out", kSetting},
    KeyClass{"clients.client[].budget", kSetting},
    KeyClass{"clients.client[].rank", kSetting},
    KeyClass{"clients.client[].profile", kByRecord},
    KeyClass{"clients.client[].until", kSetting},
    KeyClass{"client_profiles.server_seconds", kByRecord},
    KeyClass{"client_profiles.<name>.top_k", kByRecord},
    KeyClass{"client_profiles.<name>.tokens_per_second", kByRecord},
    KeyClass{"client_profiles.<name>.down_mbit", kByRecord},
    KeyClass{"client_profiles.<name>.up_mbit", kByRecord},
    KeyClass{"client_profiles.<name>.latency", kByRecord},
    KeyClass{"client_profiles.<name>.dropout", kByRecord},
    KeyClass{"client_profiles.<name>.speed_factor.distribution", kByRecord},
    KeyClass{"client_profiles.<name>.speed_factor.sigma", kByRecord},
    KeyClass{"client_profiles.<name>.speed_factor.low", kByRecord},
    KeyClass{"client_profiles.<name>.speed_factor.high", kByRecord},
    KeyClass{"client_profiles.<name>.network_factor.distribution", kByRecord},
    KeyClass{"client_profiles.<name>.network_factor.sigma", kByRecord},
    KeyClass{"client_profiles.<name>.network_factor.low", kByRecord},
    KeyClass{"client_profiles.<name>.network_factor.high", kByRecord},
    KeyClass{"train.rounds", kSetting},
    KeyClass{"train.transport_dtype", kFunction},
    KeyClass{"train.local_epochs", kTraining},
    KeyClass{"train.batch_size", kTraining},
    KeyClass{"train.accumulation", kTraining},
    KeyClass{"train.loss_mean", kFunction},
    KeyClass{"train.share_prefixes", kNone},
    KeyClass{"train.merge_tokens", kNone},
    KeyClass{"train.idle_expert_update", kTraining},
    KeyClass{"train.max_grad_norm", kTraining},
    KeyClass{"train.optimizer.name", kTraining},
    KeyClass{"train.optimizer.lr", kTraining},
    KeyClass{"train.optimizer.betas", kTraining},
    KeyClass{"train.optimizer.eps", kTraining},
    KeyClass{"train.optimizer.weight_decay", kTraining},
    KeyClass{"train.optimizer.momentum", kTraining},
    KeyClass{"train.schedule.kind", kTraining},
    KeyClass{"train.schedule.warmup_rounds", kTraining},
    KeyClass{"train.schedule.final_ratio", kTraining},
    KeyClass{"train.stop.patience", kTraining},
    KeyClass{"train.stop.min_delta", kTraining},
    KeyClass{"aggregation.rule", kSetting},
    KeyClass{"aggregation.trim", kSetting},
    KeyClass{"aggregation.byzantine", kSetting},
    KeyClass{"privacy.unit", kFunction},
    KeyClass{"privacy.epsilon", kTraining},
    KeyClass{"privacy.delta", kTraining},
    KeyClass{"privacy.noise_multiplier", kTraining},
    KeyClass{"privacy.clip", kTraining},
    KeyClass{"privacy.lot", kTraining},
    KeyClass{"privacy.sampling", kTraining},
    KeyClass{"privacy.weights", kTraining},
    KeyClass{"privacy.weight_cap", kTraining},
    KeyClass{"privacy.public_sizes", kTraining},
    KeyClass{"privacy.noise", kTraining},
    KeyClass{"privacy.noise_cohort", kTraining},
    KeyClass{"privacy.continues", kTraining},
    KeyClass{"privacy.adapt.target", kTraining},
    KeyClass{"privacy.adapt.rate", kTraining},
    KeyClass{"privacy.adapt.indicator_noise", kTraining},
    KeyClass{"secure_aggregation.mode", kFunction},
    KeyClass{"secure_aggregation.bits", kFunction},
    KeyClass{"secure_aggregation.range", kFunction},
    KeyClass{"secure_aggregation.threshold", kSetting},
    KeyClass{"secure_aggregation.weights", kSetting},
    KeyClass{"secure_aggregation.colluders", kSetting},
    KeyClass{"secure_aggregation.reports", kFunction},
    KeyClass{"evaluate.tasks", kSetting},
    KeyClass{"evaluate.budgets", kSetting},
    KeyClass{"evaluate.rank_eval_modes", kSetting},
    KeyClass{"evaluate.limit", kSetting},
    KeyClass{"evaluate.decode", kFunction},
    KeyClass{"evaluate.max_new_tokens", kFunction},
    KeyClass{"evaluate.cutoff", kFunction},
    KeyClass{"evaluate.batch_size", kNone},
    KeyClass{"evaluate.cache", kFunction},
    KeyClass{"evaluate.cache_gib", kNone},
    KeyClass{"evaluate.lowercase", kFunction},
    KeyClass{"evaluate.likelihood", kSetting},
    KeyClass{"evaluate.every", kSetting},
    KeyClass{"evaluate.before", kNone},
    KeyClass{"evaluate.as_exported", kSetting},
    KeyClass{"evaluate.per_client", kNone},
    KeyClass{"evaluate.items", kNone},
    KeyClass{"evaluate.keep_best", kNone},
    KeyClass{"evaluate.best.measure", kSetting},
    KeyClass{"evaluate.best.budget", kSetting},
    KeyClass{"evaluate.best.tasks", kSetting},
    KeyClass{"evaluate.bert_score.encoder", kFunction},
    KeyClass{"evaluate.bert_score.layer", kFunction},
    KeyClass{"evaluate.bert_score.idf", kFunction},
    KeyClass{"evaluate.bert_score.baseline", kFunction},
    KeyClass{"output.dir", kNone},
    KeyClass{"report.tensorboard", kNone},
    KeyClass{"method.name", kMethod},
    KeyClass{"method.gate_norm", kByRecord},
    KeyClass{"method.a3smoe.frequency", kMethod},
    KeyClass{"method.a3smoe.temperature", kMethod},
    KeyClass{"method.a3smoe.rescaler", kFunction},
    KeyClass{"method.a3smoe.unused_expert", kMethod},
    KeyClass{"method.fed-sb.init", kMethod},
    KeyClass{"method.fed-sb.samples", kMethod},
    KeyClass{"method.flora.fresh_init", kMethod},
    KeyClass{"method.florist.mode", kMethod},
    KeyClass{"method.florist.tau", kMethod},
    KeyClass{"method.florist.max_rank", kMethod},
    KeyClass{"method.hetlora.gamma", kMethod},
    KeyClass{"method.hetlora.lambda", kMethod},
    KeyClass{"method.hetlora.prune", kMethod},
    KeyClass{"method.hetlora.rank_min", kMethod},
    KeyClass{"method.hetlora.unused_rank", kMethod},
    KeyClass{"method.slimmable-moe.expert_mass", kMethod},
    KeyClass{"method.slimmable-moe.distillation", kMethod},
    KeyClass{"method.slimmable-moe.temperature", kMethod},
    KeyClass{"method.smoe-llb.llb_coef", kMethod},
    KeyClass{"method.smoe-llb.z_coef", kMethod},
    KeyClass{"method.smoe-llb.llb_norm", kMethod},
    KeyClass{"method.ub-smoe.dmr_mode", kFunction},
    KeyClass{"method.ub-smoe.gate_scores", kFunction},
    KeyClass{"method.ub-smoe.num_candidates", kFunction},
    KeyClass{"method.ub-smoe.phi_update", kMethod},
    KeyClass{"method.ub-smoe.phi_momentum", kMethod},
    KeyClass{"method.ub-smoe.phi_range", kMethod},
    KeyClass{"method.ub-smoe.phi_scale", kMethod},
    KeyClass{"method.ub-smoe.util_frequency", kMethod},
    KeyClass{"method.ub-smoe.util_eps", kMethod},
    KeyClass{"method.ub-smoe.phi_train", kMethod},
    KeyClass{"method.ub-smoe.phi_penalty", kMethod},
    KeyClass{"method.ub-smoe.lambda_phi", kMethod},
    KeyClass{"method.ub-smoe.phi_at_eval", kFunction},
    KeyClass{"method.ub-smoe.pg", kMethod},
    KeyClass{"method.ub-smoe.pg_source", kMethod},
    KeyClass{"method.ub-smoe.pg_activity", kMethod},
    KeyClass{"method.ub-smoe.pg_apply", kMethod},
    KeyClass{"method.ub-smoe.pg_clip_mode", kMethod},
    KeyClass{"method.ub-smoe.pg_clip", kMethod},
    KeyClass{"method.ub-smoe.pg_gamma", kMethod},
    KeyClass{"method.ub-smoe.kbar_over", kMethod},
    KeyClass{"method.ub-smoe.rho_ref", kMethod},
    KeyClass{"method.ub-smoe.rho_fn", kMethod},
};

const std::map<std::string, KeyEffect, std::less<>>& by_key() {
  static const auto all = [] {
    std::map<std::string, KeyEffect, std::less<>> classes;
    for (const auto& [key, effect] : kClasses) classes.emplace(key, effect);
    return classes;
  }();
  return all;
}

/// Returns a key with "<name>" for the name that the file chose of a table of `section`. Names may contain dots.
std::string without_name(const std::string& key, std::string_view section) {
  for (auto dot = key.find('.', section.size()); dot != key.npos; dot = key.find('.', dot + 1)) {
    auto general = concat(section, "<name>", key.substr(dot));
    if (by_key().contains(general)) return general;
  }
  return key;
}

}  // namespace

std::string without_indices(std::string_view key) {
  std::string result;
  bool inside = false;
  for (const char c : key) {
    if (c == ']') inside = false;
    if (!inside) result += c;
    if (c == '[') inside = true;
  }
  return result;
}

std::span<const KeyClass> key_classes() { return kClasses; }

KeyEffect effect_of(std::string_view key) {
  auto general = without_indices(key);
  for (const std::string_view section : {"data.files.", "client_profiles."})
    if (general.starts_with(section) && !by_key().contains(general)) general = without_name(general, section);
  const auto found = by_key().find(general);
  if (found != by_key().end()) return found->second;
  EK_CHECK(general.starts_with("method."), kInternal, "the key ", key, " has no class (fed/config/key_effects.cpp)");
  return kMethod;
}

}  // namespace evenkeel::fed
