/// \file  Classifies every key of a config by its effect on a comparison of runs. A new key must be added to the list
/// in key_effects.cpp; a test fails and names it otherwise.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace evenkeel::fed {

/// Effect of a key, where two compared runs differ in it.
enum class KeyEffect {
  kNone,      ///< names, places, additional outputs, speed; figures stay the same up to the order of float additions
  kSeed,      ///< the seed: runs that differ in nothing else repeat one experiment
  kMethod,    ///< the method and its options: what a comparison is about
  kTraining,  ///< how adapters are optimised, in which arms of a study may differ; named where they do
  kSetting,   ///< rows, clients, rounds and scored points, which should be equal
  kFunction,  ///< changes the function that is trained or scored: the same rows and adapters give other values
  /// Compared by what the run recorded, not by the key: files that it read, gate weights, dtype and kernels, simulated
  /// time.
  kByRecord,
};

/// A key and its effect.
struct KeyClass {
  /// The full key. "[]" follows a list of tables, "<name>" is a name that the file chooses.
  std::string_view key;
  KeyEffect effect;
};

/// Returns a key with "[]" for each index of a list: "clients.client[].budget".
std::string without_indices(std::string_view key);

/// Returns the classes of all keys of a run's config, including the keys of built-in methods.
std::span<const KeyClass> key_classes();

/// Returns the effect of a key; kMethod for keys of methods that other programs define.
/// \param key  a key of ExperimentConfig::values(), such as "clients.client[0].budget"
/// \throws kInternal naming a key that has no class
KeyEffect effect_of(std::string_view key);

}  // namespace evenkeel::fed
