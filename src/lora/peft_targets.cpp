#include "lora/peft_targets.h"

#include <algorithm>
#include <charconv>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::lora::peft {
namespace {

constexpr size_t kMaxLayerPatterns = 100;  // each pattern is matched with every module
constexpr std::string_view kNumber = R"(\.(?P<idx>\d+)\.)";

const OrderedJson& member(const OrderedJson& config, const char* key) {
  static const OrderedJson nothing = nullptr;
  const auto found = config.find(key);
  return found == config.end() ? nothing : *found;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Returns the elements of a list, or the single value.
std::vector<OrderedJson> each(const OrderedJson& value) {
  if (value.is_null()) return {};
  return value.is_array() ? value.get<std::vector<OrderedJson>>() : std::vector<OrderedJson>{value};
}

[[noreturn]] void refuse_value(const std::string& origin, const OrderedJson& value, std::string_view allowed) {
  fail(kCheckpoint, origin, " is ", shown(Json(value)), ", allowed: ", allowed);
}

bool is_all_linear(const OrderedJson& value) {
  return value.is_string() && lower(value.get<std::string>()) == "all-linear";
}

}  // namespace

NameList::NameList(const OrderedJson& value, const std::string& origin) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    if (!text.empty() && !is_all_linear(value)) pattern_.emplace(text, "(?:", ")\\z", origin);
    return;
  }
  if (!value.is_null() && !value.is_array()) refuse_value(origin, value, "a text, a list of texts, null");
  for (const auto& name : value) {
    if (!name.is_string()) refuse_value(origin, value, "a text, a list of texts, null");
    names_.insert(name.get<std::string>());
  }
}

bool NameList::has(std::string_view module) const {
  if (pattern_) return pattern_->match(module).has_value();
  for (size_t end = 0; end != module.npos; end = module.find('.', end)) {
    if (end > 0) ++end;
    if (names_.contains(module.substr(end))) return true;
  }
  return false;
}

ModuleTargets::ModuleTargets(const OrderedJson& config, const std::string& file)
    : known_(!member(config, "target_modules").is_null() || !member(config, "target_parameters").is_null()),
      everything_(is_all_linear(member(config, "target_modules"))),
      names_(member(config, "target_modules"), file + ": target_modules"),
      excluded_(member(config, "exclude_modules"), file + ": exclude_modules") {
  read_layers(config, file);
}

void ModuleTargets::read_layers(const OrderedJson& config, const std::string& file) {
  const auto &layers = member(config, "layers_to_transform"), &patterns = member(config, "layers_pattern");
  EK_CHECK(!member(config, "target_modules").is_string() || (layers.is_null() && patterns.is_null()), kCheckpoint, file,
           ": layers_to_transform and layers_pattern go with a list of target_modules, which is a text here");
  const auto numbers = each(layers);
  for (const auto& number : numbers) {
    if (!number.is_number_integer()) refuse_value(file + ": layers_to_transform", layers, "whole numbers, null");
    if (!layers_) layers_.emplace();
    layers_->insert(number.get<int64_t>());
  }
  EK_CHECK(each(patterns).size() <= kMaxLayerPatterns, kCheckpoint, file, ": layers_pattern has ", patterns.size(),
           " entries, allowed: up to ", kMaxLayerPatterns);
  for (const auto& pattern : each(patterns)) {
    if (!pattern.is_string()) refuse_value(file + ": layers_pattern", patterns, "texts, null");
    if (!pattern.get<std::string>().empty())
      layer_patterns_.emplace_back(pattern.get<std::string>(), "(?:^|.*?\\.)", kNumber, file + ": layers_pattern");
  }
  EK_CHECK(layer_patterns_.empty() || !layers.is_null(), kCheckpoint, file,
           ": layers_pattern is given without layers_to_transform");
  if (layer_patterns_.empty()) layer_patterns_.emplace_back("", R"(.*?\.[^.]*)", kNumber, file);
}

/// The first pattern that matches a layer number decides.
bool ModuleTargets::in_layers(std::string_view module) const {
  for (const auto& pattern : layer_patterns_) {
    const auto number = pattern.match(module, "idx");
    if (!number) continue;
    int64_t layer = -1;
    std::from_chars(number->data(), number->data() + number->size(), layer);
    return layers_->contains(layer);
  }
  return false;
}

bool ModuleTargets::has(std::string_view module) const {
  if (!excluded_.empty() && excluded_.has(module)) return false;
  if (everything_ || names_.has_whole(module)) return true;
  return names_.has(module) && (!layers_ || in_layers(module));
}

}  // namespace evenkeel::lora::peft
