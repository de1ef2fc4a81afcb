/// \file  Reads from config.json which layers of a model have a sliding window, as transformers 5 does.
#pragma once

#include <cstdint>
#include <vector>

#include "models/checkpoint.h"

namespace evenkeel::models {

/// Says where a family has sliding windows.
struct WindowRule {
  enum Layers {
    kNone,         ///< no layer has a window; a window in config.json that is shorter than the longest text is refused
    kAll,          ///< every layer has the window
    kByTypes,      ///< the layers that `layer_types` names; without it, the layers from `max_window_layers` on
    kEvenOfFirst,  ///< the layers that `layer_types` names; without it, layers 0, 2, 4, ... below `max_window_layers`
    kByPattern,    ///< the layers that `layer_types` names; without it, all but every `sliding_window_pattern`-th
  };
  Layers layers = kNone;
  int64_t otherwise = 0;       ///< the window if config.json lacks `sliding_window`; 0: none
  bool needs_consent = false;  ///< there is no window unless `use_sliding_window` is true
  int64_t pattern = 0;         ///< kByPattern: replaces `sliding_window_pattern`; 0: that key, or 6 without it
};

/// Returns which layers are of the sliding kind, whatever the window.
/// \throws kCheckpoint on an unsupported layer type, a wrong number of layer types, or a pattern below 1
std::vector<bool> read_sliding_layers(const ModelConfig& config, const ModelSpec& model, const WindowRule& rule);

/// Returns how many tokens a token of each layer attends to, itself included; 0: all up to itself. The result is empty
/// if no layer has a window, or if all windows are at least as long as the longest text.
/// \throws kCheckpoint on a window below 1, on a missing window that layers need, on a window that the family does not
/// have, and as read_sliding_layers()
std::vector<int64_t> read_windows(const ModelConfig& config, const ModelSpec& model, const WindowRule& rule);

}  // namespace evenkeel::models
