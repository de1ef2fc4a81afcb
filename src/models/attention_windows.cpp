#include "models/attention_windows.h"

#include <algorithm>

#include "base/plain/error.h"

namespace evenkeel::models {
namespace {

constexpr int64_t kFirstWindowLayer = 28;  // transformers' default of max_window_layers

/// Returns the window in tokens; 0: none.
int64_t read_window(const ModelConfig& config, const WindowRule& rule) {
  if (rule.needs_consent && !config.flag_or("use_sliding_window", false)) return 0;
  if (!config.view().json().contains("sliding_window")) return rule.otherwise;
  return config.has("sliding_window") ? config.integer("sliding_window") : 0;
}

/// Returns which layers `layer_types` names as having a window; empty if the key is absent.
std::vector<bool> read_layer_types(const ModelConfig& config, const ModelSpec& model, bool may_slide) {
  std::vector<bool> slides;
  const auto types = config.view().find("layer_types");
  if (!types) return slides;
  for (const auto& type : types->items()) {
    const bool sliding = may_slide && type.string() == "sliding_attention";
    type.require(sliding || type.string() == "full_attention" || type.string() == "attention", " is ",
                 shown(type.json()), ", supported: \"full_attention\"", may_slide ? ", \"sliding_attention\"" : "");
    slides.push_back(sliding);
  }
  types->require(static_cast<int64_t>(slides.size()) == model.num_layers, " has ", slides.size(),
                 " entries, expected one for each of ", model.num_layers, " layers");
  return slides;
}

bool reads_types(const WindowRule& rule) {
  return rule.layers == WindowRule::kByTypes || rule.layers == WindowRule::kEvenOfFirst;
}

std::vector<bool> layers_with_window(const ModelConfig& config, const ModelSpec& model, const WindowRule& rule) {
  auto slides = read_layer_types(config, model, reads_types(rule));
  if (!slides.empty() && reads_types(rule)) return slides;
  const int64_t bound = reads_types(rule) ? config.integer_or("max_window_layers", kFirstWindowLayer) : 0;
  slides.assign(static_cast<size_t>(model.num_layers), false);
  for (int64_t layer = 0; layer < model.num_layers; ++layer)
    slides[static_cast<size_t>(layer)] =
        rule.layers == WindowRule::kEvenOfFirst ? layer % 2 == 0 && layer < bound : layer >= bound;
  return slides;
}

}  // namespace

std::vector<int64_t> read_windows(const ModelConfig& config, const ModelSpec& model, const WindowRule& rule) {
  const int64_t window = read_window(config, rule);
  const auto slides = layers_with_window(config, model, rule);
  const bool by_types = reads_types(rule) && config.has("layer_types");
  EK_CHECK(window > 0 || !by_types || std::none_of(slides.begin(), slides.end(), [](bool one) { return one; }),
           kCheckpoint, config.origin(), ": layer_types holds \"sliding_attention\", but there is no sliding_window");
  if (window == 0 || window >= model.max_positions) return {};
  EK_CHECK(rule.layers != WindowRule::kNone, kCheckpoint, config.origin(), ": sliding_window is ", window,
           ", supported for model_type \"", model.family, "\": null, or at least the ", model.max_positions,
           " of max_position_embeddings");
  std::vector<int64_t> windows;
  for (const bool one : slides) windows.push_back(one ? window : 0);
  return windows;
}

}  // namespace evenkeel::models
