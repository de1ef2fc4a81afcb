#include "models/rope_config.h"

#include <cmath>

#include "base/plain/text.h"

namespace evenkeel {
namespace {

constexpr std::string_view kScaling = "rope_scaling", kParameters = "rope_parameters", kTheta = "rope_theta",
                           kPartial = "partial_rotary_factor";

/// Returns the object under `key`, or nullopt if it is absent or empty.
std::optional<JsonView> rope_block(const ModelConfig& config, std::string_view key) {
  const auto block = config.view().find(key);
  if (block) block->object();
  return block && block->size() > 0 ? block : std::nullopt;
}

/// Returns the object with the rotary settings. transformers reads only one object, and prefers rope_scaling.
std::optional<JsonView> rope_block(const ModelConfig& config) {
  const auto scaling = rope_block(config, kScaling), parameters = rope_block(config, kParameters);
  if (!scaling) return parameters;
  EK_CHECK(!parameters || parameters->json() == scaling->json(), kCheckpoint, config.origin(), ": ", kScaling, " is ",
           shown(scaling->json()), " and ", kParameters, " ", shown(parameters->json()),
           ", allowed: one of them, or both alike");
  return scaling;
}

void require_plain_type(const JsonView& block, std::string_view key) {
  if (!block.json().contains(key)) return;
  const auto type = block.at(key);
  type.require(type.string() == "default", " is ", shown(type.json()), ", supported: \"default\"");
}

/// Rejects partial RoPE. Plain RoPE rotates all of a head.
void require_whole_heads(const JsonView& settings) {
  const auto part = settings.find(kPartial);
  if (part) part->require(part->number() == 1, " is ", part->number(), ", supported: 1");
}

void require_plain_block(const JsonView& block) {
  const std::string_view type = block.json().contains("rope_type") ? "rope_type" : "type";
  require_plain_type(block, type);  // first, so that the error names the scaled type instead of its further keys
  for (const auto& member : block.members()) {
    const std::string_view key = member.key();
    member.require(key == "rope_type" || key == "type" || key == kTheta || key == kPartial,
                   " is no key of plain RoPE, known: rope_type, type, ", kTheta, ", ", kPartial);
  }
  require_whole_heads(block);
}

/// Reads theta and rejects null, with which transformers cannot compute either.
double theta_at(const JsonView& settings) {
  const auto theta = settings.at(kTheta);
  theta.require(theta.number() > 0 && std::isfinite(theta.number()), " is ", shown(theta.json()), ", allowed: above 0");
  return theta.number();
}

}  // namespace

double read_rope_theta(const ModelConfig& config, double otherwise) {
  require_whole_heads(config.view());
  const auto block = rope_block(config);
  if (block) require_plain_block(*block);
  if (block && block->json().contains(kTheta)) return theta_at(*block);
  return config.view().json().contains(kTheta) ? theta_at(config.view()) : otherwise;
}

}  // namespace evenkeel
