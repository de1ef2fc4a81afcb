#include "models/cost.h"

#include <algorithm>

namespace evenkeel {
namespace {

bool is_router(const std::string& site) { return site.ends_with(".mlp.gate"); }
bool is_attention(const std::string& site) { return site.find(".self_attn.") != std::string::npos; }

int64_t parameters(const Site& site, int64_t rank, int64_t experts) { return (site.in + site.out) * rank * experts; }

double& component_of(ForwardCost& cost, const std::string& name, const Site& site) {
  if (is_router(name)) return cost.lora_router;
  if (is_attention(name)) return cost.lora_attention;
  return site.experts > 0 ? cost.lora_experts : cost.lora_mlp;
}

/// base: frozen linears and the head; scores: attention products; lora: factors. FLOPs per multiply-add.
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

ForwardCost forward_cost(const ModelSpec& spec, const CostShape& shape, const Sites& sites, int64_t rank) {
  const int64_t top_k = shape.top_k > 0 ? shape.top_k : spec.top_k;
  const auto tokens = static_cast<double>(shape.tokens), layers = static_cast<double>(spec.num_layers);
  const auto hidden = static_cast<double>(spec.hidden_size);
  const auto queries = static_cast<double>(spec.num_heads * spec.head_width);
  const auto keys = static_cast<double>(spec.num_kv_heads * spec.head_width);
  const auto mlp = 3 * hidden * static_cast<double>(spec.intermediate_size);
  ForwardCost cost;
  cost.attention_projections = layers * tokens * hidden * (2 * queries + 2 * keys);
  cost.attention_scores = layers * tokens * static_cast<double>(shape.length) * 2 * queries;
  cost.router = layers * tokens * hidden * static_cast<double>(spec.num_experts);
  (spec.num_experts > 0 ? cost.experts : cost.mlp) =
      layers * tokens * mlp * static_cast<double>(spec.num_experts > 0 ? top_k : 1);
  cost.head = tokens * hidden * static_cast<double>(spec.vocab_size);
  for (const auto& [name, site] : sites)
    component_of(cost, name, site) +=
        tokens * static_cast<double>(parameters(site, rank, site.experts > 0 ? top_k : 1));
  return cost;
}

double total(const ForwardCost& cost) {
  return cost.attention_projections + cost.attention_scores + cost.router + cost.experts + cost.mlp + cost.head +
         cost.lora_attention + cost.lora_experts + cost.lora_mlp + cost.lora_router;
}

ForwardCost inference_flops(const ForwardCost& multiply_adds) { return scaled(multiply_adds, 2, 2, 2); }

ForwardCost training_flops(const ForwardCost& multiply_adds) { return scaled(multiply_adds, 4, 6, 6); }

int64_t lora_parameters(const Sites& sites, int64_t rank) {
  int64_t sum = 0;
  for (const auto& [name, site] : sites) sum += parameters(site, rank, std::max<int64_t>(site.experts, 1));
  return sum;
}

int64_t activated_parameters(const Sites& sites, int64_t rank, int64_t top_k) {
  int64_t sum = 0;
  for (const auto& [name, site] : sites) sum += parameters(site, rank, site.experts > 0 ? top_k : 1);
  return sum;
}

}  // namespace evenkeel
