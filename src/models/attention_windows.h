/// \file  Reads from config.json which layers of a model have a sliding window, as transformers 5 does.
#pragma once

#include <cstdint>
#include <vector>

#include "models/checkpoint.h"

namespace evenkeel::models {

/// Says where a family has sliding windows.
struct WindowRule {
  enum Layers {
    kNone,       ///< the family has no window; one that is shorter than the longest text is refused
    kAll,        ///< every layer has the window
    kByTypes,    ///< the layers that `layer_types` names, or else those from `max_window_layers` on
    kByPattern,  ///< the layers that `layer_types` names, or else all but each `sliding_window_pattern`-th
  };
  Layers layers = kNone;
  int64_t otherwise = 0;       ///< the window if config.json lacks `sliding_window`; 0: none
  bool needs_consent = false;  ///< there is no window unless `use_sliding_window` is true
  int64_t pattern = 0;         ///< of kByPattern: the pattern, whatever the key says; 0: as the key says, or else 6
};

/// Returns which layers are of the sliding kind, whatever the window.
/// \throws kCheckpoint on another layer type, and on a count of types or a pattern that is wrong
std::vector<bool> read_sliding_layers(const ModelConfig& config, const ModelSpec& model, const WindowRule& rule);

/// Returns how many tokens a token of each layer attends to, itself included; 0: all up to itself. The result is empty
/// if no layer has a window, or if all windows are at least as long as the longest text.
/// \throws kCheckpoint on a window below 1, on another layer type, and on a window that the family does not have
std::vector<int64_t> read_windows(const ModelConfig& config, const ModelSpec& model, const WindowRule& rule);

}  // namespace evenkeel::models
