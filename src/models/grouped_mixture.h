/// \file  Reads from config.json the mixtures of DeepSeek and of families after it: shared experts beside the routed
/// ones, a selection limited to groups of experts, a factor of the gate weights, dense layers before the sparse ones.
#pragma once

#include "models/decoder.h"

namespace evenkeel::models {

/// Values of absent config.json keys, as in the family's config class in transformers.
struct GroupedDefaults {
  bool grouped = true;                  ///< false: `n_group` and `topk_group` are not read
  int64_t groups = 1, kept_groups = 1;  ///< `n_group` and `topk_group`; 0: the keys are required
  int64_t shared = 1;                   ///< `n_shared_experts`
  double scale = 1;                     ///< `routed_scaling_factor`
};

/// Reads the sizes, groups and factor. The shared experts are one block, as wide as n_shared_experts of them. The
/// family sets gate, score and bias.
/// \param experts_too  alternative key of `n_routed_experts`
/// \throws kCheckpoint when the number of experts is no multiple of the number of groups, when more groups are kept
/// than exist, when the kept groups have fewer experts than a token selects, and as read_mixture()
MixtureSpec read_grouped_mixture(const ModelConfig& config, std::string_view experts_too,
                                 const GroupedDefaults& defaults);

/// Sets the gates of DeepSeek-V3: sigmoid scores, a bias of the selection, groups scored by their two best experts.
void set_sigmoid_gates(MixtureSpec& mixture, bool renormalise);

/// Returns a function for DecoderSpec::feed_forward: dense blocks in the first layers, as many as
/// `first_k_dense_replace` says, and mixtures in the others. \param otherwise  the number if the key is absent
std::function<FeedForwardSpec(int64_t)> behind_dense_layers(const MixtureSpec& mixture, const MlpSpec& dense,
                                                            const ModelConfig& config, int64_t otherwise);

/// Returns the number of layers for multi-token prediction that a checkpoint may hold behind the last layer
/// (`num_nextn_predict_layers`). They are not run. \param otherwise  the number if both spellings are absent
int64_t read_prediction_layers(const ModelConfig& config, int64_t otherwise);

}  // namespace evenkeel::models
