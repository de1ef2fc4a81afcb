#include "lora/peft_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/text.h"

namespace evenkeel::lora::peft {
namespace {

/// The time of OrderedJson is quadratic in the number of keys of an object. A rank and an alpha for every linear layer
/// of OLMoE-1B-7B are 13,000 keys and values.
constexpr JsonLimits kLimits{.values = 100'000, .unique_keys = true};

/// The values of a key of adapter_config.json that describe a plain LoRA adapter.
struct KnownKey {
  std::string_view name, allowed;
  bool (*is_plain)(const OrderedJson& value);
};

bool anything(const OrderedJson& /*value*/) { return true; }
/// PEFT reads a flag of null, which axolotl writes, as false.
bool is_flag(const OrderedJson& value) { return value.is_boolean() || value.is_null(); }
bool is_false(const OrderedJson& value) { return value.is_null() || value == false; }
bool is_rank(const OrderedJson& value) { return value.is_number_integer() && value > 0 && value <= 65536; }
bool is_number(const OrderedJson& value) { return value.is_number(); }
bool is_nothing(const OrderedJson& value) { return value.is_null() || (value.is_structured() && value.empty()); }
bool are_ranks(const OrderedJson& value) {
  return value.is_null() || (value.is_object() && std::all_of(value.begin(), value.end(), is_rank));
}
bool are_numbers(const OrderedJson& value) {
  return value.is_null() || (value.is_object() && std::all_of(value.begin(), value.end(), is_number));
}
bool are_texts(const OrderedJson& value) {
  return value.is_null() || (value.is_array() && std::all_of(value.begin(), value.end(),
                                                             [](const OrderedJson& one) { return one.is_string(); }));
}
bool is_text(const OrderedJson& value) { return value.is_null() || value.is_string(); }

bool are_settings(const OrderedJson& value) { return value.is_null() || value.is_object(); }

/// Returns whether the initialisation leaves the base model unchanged.
bool starts_with_unchanged_base(const OrderedJson& value) {
  if (is_flag(value)) return true;
  constexpr std::array kUnchanged{"gaussian", "orthogonal", "eva", "mica"};
  return std::find(kUnchanged.begin(), kUnchanged.end(), value) != kUnchanged.end();
}

/// Every key that PEFT 0.17 to 0.21 writes. A missing key has its default value. Names, dropout and versions do not
/// affect saved factors. Keys that select modules are checked where they are read (ModuleTargets).
constexpr KnownKey kKnownKeys[] = {
    {"peft_type", "\"LORA\"", [](const OrderedJson& value) { return value == "LORA"; }},
    {"r", "a whole number from 1 to 65536", is_rank},
    {"lora_alpha", "a number", is_number},
    {"use_rslora", "true or false", is_flag},
    {"bias", "\"none\"", [](const OrderedJson& value) { return value == "none"; }},
    {"init_lora_weights",
     "true, false, \"gaussian\", \"orthogonal\", \"eva\", \"mica\" (others change the base model too)",
     starts_with_unchanged_base},
    {"fan_in_fan_out", "false", is_false},
    {"use_dora", "false", is_false},
    {"use_qalora", "false", is_false},
    {"lora_bias", "false", is_false},
    {"ensure_weight_tying", "false", is_false},
    {"rank_pattern", "whole numbers from 1 to 65536 by name", are_ranks},
    {"alpha_pattern", "numbers by name", are_numbers},
    {"modules_to_save", "nothing there", is_nothing},
    {"target_parameters", "a list of names", are_texts},
    {"layer_replication", "nothing there", is_nothing},
    {"trainable_token_indices", "nothing there", is_nothing},
    {"loftq_config", "nothing there", is_nothing},
    {"corda_config", "nothing there", is_nothing},
    {"eva_config", "settings by name", are_settings},
    {"megatron_config", "nothing there", is_nothing},
    {"alora_invocation_tokens", "nothing there", is_nothing},
    {"arrow_config", "nothing there", is_nothing},
    {"kasa_config", "nothing there", is_nothing},
    {"lora_ga_config", "nothing there", is_nothing},
    {"monteclora_config", "nothing there", is_nothing},
    {"use_bdlora", "false or nothing there",
     [](const OrderedJson& value) { return is_false(value) || is_nothing(value); }},
    {"velora_config", "nothing there", is_nothing},
    {"task_type", "a text", is_text},
    {"base_model_name_or_path", "a text", is_text},
    {"revision", "a text", is_text},
    {"peft_version", "a text", is_text},
    {"megatron_core", "a text", is_text},
    {"inference_mode", "true or false", is_flag},
    {"lora_dropout", "a number", is_number},
    {"qalora_group_size", "a number", is_number},
    {"auto_mapping", "anything", anything},
    {"target_modules", "anything", anything},
    {"exclude_modules", "anything", anything},
    {"layers_to_transform", "anything", anything},
    {"layers_pattern", "anything", anything},
};

const KnownKey& known_key(const std::string& name, const std::string& file) {
  const auto found = std::find_if(std::begin(kKnownKeys), std::end(kKnownKeys),
                                  [&](const KnownKey& known) { return known.name == name; });
  EK_CHECK(found != std::end(kKnownKeys), kCheckpoint, file, ": ", shown(name),
           " is not a key of plain LoRA (PEFT 0.17 to 0.21): what it changes is not known here");
  return *found;
}

void require_plain_lora(const OrderedJson& config, const std::string& file) {
  EK_CHECK(config.is_object() && config.contains("peft_type"), kCheckpoint, file, ": not an adapter_config.json");
  for (const auto& [name, value] : config.items()) {
    const auto& known = known_key(name, file);
    EK_CHECK(known.is_plain(value), kCheckpoint, file, ": ", shown(name), " is ", shown(Json(value)),
             ", allowed: ", known.allowed);
  }
  for (const auto* needed : {"r", "lora_alpha"})
    EK_CHECK(config.contains(needed), kCheckpoint, file, ": ", needed, " is missing");
}

template <typename T, typename Read>
Patterns<T> read_patterns(const OrderedJson& config, const char* key, const std::string& file, Read read) {
  Patterns<T> patterns;
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return patterns;
  for (const auto& [text, value] : found->items())
    patterns.emplace_back(NamePattern(text, concat(file, ": ", key)), read(value));
  return patterns;
}

template <typename T>
T first_match(const Patterns<T>& patterns, std::string_view name, T otherwise) {
  for (const auto& [pattern, value] : patterns)
    if (pattern.matches(name)) return value;
  return otherwise;
}

/// Returns whether a pattern has only letters, digits, _, - and dots, which match any character.
bool is_literal(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; });
}

bool ends_at_a_dot(std::string_view name, std::string_view end) {
  if (name.size() < end.size() || (name.size() > end.size() && name[name.size() - end.size() - 1] != '.')) return false;
  return std::equal(end.begin(), end.end(), name.end() - static_cast<std::ptrdiff_t>(end.size()),
                    [](char wanted, char there) { return wanted == there || wanted == '.'; });
}

}  // namespace

NamePattern::NamePattern(std::string text, const std::string& origin) : text_(std::move(text)) {
  if (!is_literal(text_)) regex_.emplace(text_, "(.*\\.)?(", ")$", origin);
}

bool NamePattern::matches(std::string_view name) const {
  return regex_ ? regex_->match(name).has_value() : ends_at_a_dot(name, text_);
}

int64_t AdapterConfig::rank_of(std::string_view name) const { return first_match(ranks, name, rank); }

double AdapterConfig::scaling_of(std::string_view name) const {
  const auto r = static_cast<double>(rank_of(name));
  return first_match(alphas, name, alpha) / (square_root ? std::sqrt(r) : r);
}

bool AdapterConfig::adapts_parameter(std::string_view name) const {
  return std::any_of(parameters.begin(), parameters.end(), [&](const std::string& end) {
    return name == end ||
           (name.ends_with(end) && name.size() > end.size() && name[name.size() - end.size() - 1] == '.');
  });
}

AdapterConfig read_adapter_config(const fs::path& file) {
  const auto json = load_json<OrderedJson>(file, kCheckpoint, kLimits);  // patterns are tried in file order
  require_plain_lora(json, file.string());
  AdapterConfig config{.rank = json["r"].get<int64_t>(),
                       .alpha = json["lora_alpha"].get<double>(),
                       .square_root = json.contains("use_rslora") && json["use_rslora"] == true,
                       .ranks = read_patterns<int64_t>(json, "rank_pattern", file.string(),
                                                       [](const OrderedJson& value) { return value.get<int64_t>(); }),
                       .alphas = read_patterns<double>(json, "alpha_pattern", file.string(),
                                                       [](const OrderedJson& value) { return value.get<double>(); }),
                       .parameters = {},
                       .targets = ModuleTargets(json, file.string())};
  if (const auto found = json.find("target_parameters"); found != json.end() && found->is_array())
    config.parameters = found->get<std::vector<std::string>>();
  return config;
}

}  // namespace evenkeel::lora::peft
