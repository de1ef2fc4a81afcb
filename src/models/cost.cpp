#include "models/cost.h"

#include <algorithm>

namespace evenkeel::models {
namespace {

int64_t parameters(const lora::Site& site, int64_t rank, int64_t experts) {
  return (site.in + site.out) * rank * experts;
}

double& component_of(ForwardCost& cost, lora::SiteRole role) {
  switch (role) {
    case lora::SiteRole::kRouter:
      return cost.lora_router;
    case lora::SiteRole::kAttention:
      return cost.lora_attention;
    case lora::SiteRole::kExpert:
      return cost.lora_experts;
    default:
      return cost.lora_mlp;
  }
}

/// Multiplies the components by FLOPs per multiply-add: `base` for frozen linears and the head, `scores` for attention
/// products, `lora` for factors.
ForwardCost scaled(const ForwardCost& cost, double base, double scores, double lora) {
  return {.attention_projections = base * cost.attention_projections,
          .attention_scores = scores * cost.attention_scores,
          .router = base * cost.router,
          .experts = base * cost.experts,
          .mlp = base * cost.mlp,
          .head = base * cost.head,
          .lora_attention = lora * cost.lora_attention,
          .lora_experts = lora * cost.lora_experts,
          .lora_mlp = lora * cost.lora_mlp,
          .lora_router = lora * cost.lora_router};
}

}  // namespace

ForwardCost forward_cost(const ModelSpec& spec, const CostShape& shape, const lora::Sites& sites, int64_t rank) {
  const int64_t top_k = shape.top_k > 0 ? shape.top_k : spec.top_k;
  const auto tokens = static_cast<double>(shape.tokens);
  const auto& work = spec.work;
  ForwardCost cost{.attention_projections = tokens * work.attention,
                   .attention_scores = tokens * static_cast<double>(shape.length) * work.scores,
                   .router = tokens * work.router,
                   .experts = tokens * static_cast<double>(top_k) * work.experts,
                   .mlp = tokens * work.mlp,
                   .head = tokens * work.head};
  for (const auto& [name, site] : sites)
    component_of(cost, site.role) += tokens * static_cast<double>(parameters(site, rank, site.experts > 0 ? top_k : 1));
  return cost;
}

double total(const ForwardCost& cost) {
  return cost.attention_projections + cost.attention_scores + cost.router + cost.experts + cost.mlp + cost.head +
         cost.lora_attention + cost.lora_experts + cost.lora_mlp + cost.lora_router;
}

ForwardCost training_flops(const ForwardCost& multiply_adds) { return scaled(multiply_adds, 4, 6, 6); }

int64_t lora_parameters(const lora::Sites& sites, int64_t rank) {
  int64_t sum = 0;
  for (const auto& [name, site] : sites) sum += parameters(site, rank, std::max<int64_t>(site.experts, 1));
  return sum;
}

int64_t activated_parameters(const lora::Sites& sites, int64_t rank, int64_t top_k) {
  int64_t sum = 0;
  for (const auto& [name, site] : sites) sum += parameters(site, rank, site.experts > 0 ? top_k : 1);
  return sum;
}

}  // namespace evenkeel::models
