#include "models/attention_windows.h"

#include <algorithm>
#include <functional>

#include "base/plain/error.h"

namespace evenkeel::models {
namespace {

constexpr int64_t kFirstWindowLayer = 28;  // transformers' default of max_window_layers
constexpr int64_t kPattern = 6;            // transformers' default of sliding_window_pattern

/// Returns the window in tokens; 0: none.
int64_t read_window(const ModelConfig& config, const WindowRule& rule) {
  if (rule.needs_consent && !config.flag_or("use_sliding_window", false)) return 0;
  if (!config.view().json().contains("sliding_window")) return rule.otherwise;
  return config.has("sliding_window") ? config.integer("sliding_window") : 0;
}

bool reads_types(const WindowRule& rule) {
  return rule.layers == WindowRule::kByTypes || rule.layers == WindowRule::kEvenOfFirst ||
         rule.layers == WindowRule::kByPattern;
}

/// Returns which layers `layer_types` names as having a window; empty if the key is absent.
std::vector<bool> read_layer_types(const ModelConfig& config, const ModelSpec& model, const WindowRule& rule) {
  std::vector<bool> slides;
  const auto types = config.view().find("layer_types");
  if (!types) return slides;
  const bool may_slide = reads_types(rule), has_older_name = rule.layers != WindowRule::kByPattern;
  for (const auto& type : types->items()) {
    const bool sliding = may_slide && type.string() == "sliding_attention";
    type.require(sliding || type.string() == "full_attention" || (has_older_name && type.string() == "attention"),
                 " is ", shown(type.json()), ", supported: \"full_attention\"",
                 may_slide ? ", \"sliding_attention\"" : "");
    slides.push_back(sliding);
  }
  types->require(static_cast<int64_t>(slides.size()) == model.num_layers, " has ", slides.size(),
                 " entries, expected one for each of ", model.num_layers, " layers");
  return slides;
}

/// Returns which layers have a window where `layer_types` does not say it.
std::function<bool(int64_t layer)> usual_layers(const ModelConfig& config, const WindowRule& rule) {
  if (rule.layers == WindowRule::kByPattern) {
    const int64_t pattern = rule.pattern > 0 ? rule.pattern : config.integer_or("sliding_window_pattern", kPattern);
    EK_CHECK(pattern > 0, kCheckpoint, config.origin(), ": sliding_window_pattern is ", pattern,
             ", allowed: 1 or more");
    return [pattern](int64_t layer) { return (layer + 1) % pattern != 0; };
  }
  if (rule.layers == WindowRule::kAll || rule.layers == WindowRule::kNone) return [](int64_t) { return true; };
  const int64_t bound = config.integer_or("max_window_layers", kFirstWindowLayer);
  if (rule.layers == WindowRule::kEvenOfFirst)
    return [bound](int64_t layer) { return layer % 2 == 0 && layer < bound; };
  return [bound](int64_t layer) { return layer >= bound; };
}

}  // namespace

std::vector<bool> read_sliding_layers(const ModelConfig& config, const ModelSpec& model, const WindowRule& rule) {
  auto slides = read_layer_types(config, model, rule);
  if (!slides.empty() && reads_types(rule)) return slides;
  slides.clear();
  const auto is_sliding = usual_layers(config, rule);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) slides.push_back(is_sliding(layer));
  return slides;
}

std::vector<int64_t> read_windows(const ModelConfig& config, const ModelSpec& model, const WindowRule& rule) {
  const int64_t window = read_window(config, rule);
  const auto slides = read_sliding_layers(config, model, rule);
  const bool needs_one = rule.layers == WindowRule::kByPattern || (reads_types(rule) && config.has("layer_types"));
  EK_CHECK(window > 0 || !needs_one || std::none_of(slides.begin(), slides.end(), [](bool one) { return one; }),
           kCheckpoint, config.origin(), ": ",
           config.has("layer_types") ? "layer_types holds \"sliding_attention\"" : "there are layers with a window",
           ", but there is no sliding_window");
  if (window == 0 || window >= model.max_positions) return {};
  EK_CHECK(rule.layers != WindowRule::kNone, kCheckpoint, config.origin(), ": sliding_window is ", window,
           ", supported for model_type \"", model.family, "\": null, or at least the ", model.max_positions,
           " of max_position_embeddings");
  std::vector<int64_t> windows;
  for (const bool one : slides) windows.push_back(one ? window : 0);
  return windows;
}

}  // namespace evenkeel::models
