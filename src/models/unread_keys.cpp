#include "models/unread_keys.h"

#include <array>
#include <set>

#include "base/plain/log.h"
#include "base/plain/text.h"

namespace evenkeel::models {
namespace {

/// A key, and the number with which it changes nothing. Empty texts, lists, false and null never change anything.
struct Key {
  std::string_view name;
  double neutral = 0;
};

constexpr auto kKeys = std::to_array<Key>({{"bad_words_ids"},
                                           {"begin_suppress_tokens"},
                                           {"constraints"},
                                           {"diversity_penalty"},
                                           {"dola_layers"},
                                           {"encoder_no_repeat_ngram_size"},
                                           {"encoder_repetition_penalty", 1},
                                           {"exponential_decay_length_penalty"},
                                           {"force_words_ids"},
                                           {"forced_bos_token_id", -1},
                                           {"forced_eos_token_id", -1},
                                           {"guidance_scale", 1},
                                           {"min_length"},
                                           {"min_new_tokens"},
                                           {"no_repeat_ngram_size"},
                                           {"num_beam_groups", 1},
                                           {"num_beams", 1},
                                           {"penalty_alpha"},
                                           {"remove_invalid_values"},
                                           {"repetition_penalty", 1},
                                           {"sequence_bias"},
                                           {"stop_strings"},
                                           {"suppress_tokens"},
                                           {"token_healing"},
                                           {"watermarking_config"}});

bool changes_answers(const Json& value, double neutral) {
  if (value.is_number()) return value.get<double>() != neutral;
  if (value.is_boolean()) return value.get<bool>();
  return !value.empty() && value != "";
}

/// Returns true for the first call with this file.
bool is_first(const ModelConfig& config) {
  static std::set<std::string> warned;
  return warned.insert(config.origin()).second;
}

}  // namespace

void warn_of_own_code(const ModelConfig& config) {
  const auto map = config.view().find("auto_map");
  const bool own = map && map->json().is_object() && map->json().contains("AutoModelForCausalLM");
  if (own && is_first(config))
    log::warning("[model] ", config.origin(),
                 ": auto_map names code of the folder, which is not run (in transformers only with "
                 "trust_remote_code=True)");
}

void warn_of_generation_keys(const ModelConfig& generation) {
  std::vector<std::string> found;
  for (const auto& [name, neutral] : kKeys)
    if (const auto value = generation.view().find(name); value && changes_answers(value->json(), neutral))
      found.push_back(concat(name, " = ", shown(value->json())));
  if (found.empty() || !is_first(generation)) return;
  log::warning("[model] ", generation.origin(), ": ", join(found),
               ": transformers applies it to every answer, here it is not applied");
}

}  // namespace evenkeel::models
