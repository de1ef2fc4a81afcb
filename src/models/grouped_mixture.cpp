#include "models/grouped_mixture.h"

#include "base/plain/error.h"

namespace evenkeel::models {
namespace {

/// Reads a number of 1 or more. \param otherwise  the value if the key is absent; 0: the key is required
int64_t read_count(const ModelConfig& config, std::string_view key, int64_t otherwise) {
  return otherwise > 0 && !config.view().json().contains(key) ? otherwise : config.integer(key);
}

void read_groups(const ModelConfig& config, const GroupedDefaults& defaults, MixtureSpec& mixture) {
  auto& router = mixture.router;
  router.groups = read_count(config, "n_group", defaults.groups);
  router.kept_groups = read_count(config, "topk_group", defaults.kept_groups);
  EK_CHECK(mixture.experts % router.groups == 0, kCheckpoint, config.origin(), ": n_routed_experts ", mixture.experts,
           " is not a multiple of n_group ", router.groups);
  EK_CHECK(router.kept_groups <= router.groups, kCheckpoint, config.origin(), ": topk_group is ", router.kept_groups,
           ", allowed: 1 to ", router.groups, ", the n_group");
  const int64_t each = mixture.experts / router.groups;
  EK_CHECK(mixture.top_k <= each * router.kept_groups, kCheckpoint, config.origin(), ": num_experts_per_tok is ",
           mixture.top_k, ", allowed: 1 to ", each * router.kept_groups, ", the experts of topk_group groups");
}

}  // namespace

MixtureSpec read_grouped_mixture(const ModelConfig& config, std::string_view experts_too,
                                 const GroupedDefaults& defaults) {
  auto mixture = read_mixture(
      config, {.experts = "n_routed_experts", .width = "moe_intermediate_size", .experts_too = experts_too});
  if (defaults.grouped) read_groups(config, defaults, mixture);
  mixture.router.scale = config.number_or("routed_scaling_factor", defaults.scale);
  mixture.shared = SharedExpert{.width = mixture.width * read_count(config, "n_shared_experts", defaults.shared)};
  mixture.names.shared = "shared_experts";
  return mixture;
}

void set_sigmoid_gates(MixtureSpec& mixture, bool renormalise) {
  mixture.gate = {.score = nn::ScoreFunction::kSigmoid, .renormalise = renormalise, .key = "norm_topk_prob"};
  mixture.correction_bias = true;
  mixture.router.group_score = nn::GroupScore::kSumOfTwoLargest;
}

std::function<FeedForwardSpec(int64_t)> behind_dense_layers(const MixtureSpec& mixture, const MlpSpec& dense,
                                                            const ModelConfig& config, int64_t otherwise) {
  constexpr int64_t kMostLayers = 1 << 20;
  const auto key = config.view().find("first_k_dense_replace");
  const int64_t first = key ? key->integer(0, kMostLayers) : otherwise;
  return [=](int64_t layer) -> FeedForwardSpec {
    if (layer < first) return dense;
    return mixture;
  };
}

int64_t read_prediction_layers(const ModelConfig& config, int64_t otherwise) {
  constexpr int64_t kMost = 1024;
  for (const auto* name : {"num_nextn_predict_layers", "num_mtp_layers"})
    if (const auto key = config.view().find(name)) return key->integer(0, kMost);
  return otherwise;
}

}  // namespace evenkeel::models
