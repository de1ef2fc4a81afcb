#include "tokenizer/normalizer.h"

#include <memory>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/unicode/unicode.h"
#include "tokenizer/bert.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/pattern.h"
#include "tokenizer/replace.h"

namespace evenkeel::tokenizer {
namespace {

constexpr size_t kMostNormalizers = 32;  // because each runs over every text
constexpr size_t kMostGrowth = 1024;     // times the bytes of the text

using Form = std::string_view (*)(std::string_view, std::string&);

std::optional<std::string> changed(Form form, std::string_view text) {
  std::string storage;
  const auto result = form(text, storage);
  return result.data() == text.data() ? std::nullopt : std::optional(std::move(storage));
}

bool is_space(uint32_t code_point) { return (unicode::flags()[code_point] & unicode::kSpace) != 0; }

std::string_view without_spaces(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const auto code = unicode::decode(text.data());
    if (!is_space(code.value)) break;
    text.remove_prefix(code.length);
  }
  while (right && !text.empty()) {
    const auto code = unicode::decode_before(text.data(), text.data() + text.size());
    if (!is_space(code.value)) break;
    text.remove_suffix(code.length);
  }
  return text;
}

}  // namespace

Normalizer::Normalizer(const JsonView& json) { add(json); }

Normalizer::Step Normalizer::form(const std::string& type) const {
  Form chosen = nullptr;
  if (type == "NFC") chosen = unicode::nfc;
  if (type == "NFD") chosen = unicode::nfd;
  if (type == "NFKC") chosen = unicode::nfkc;
  if (type == "NFKD") chosen = unicode::nfkd;
  if (!chosen) return nullptr;
  return [chosen](std::string_view text) { return changed(chosen, text); };
}

/// Adds a normalizer. JsonLimits::depth limits the nesting of sequences.
void Normalizer::add(const JsonView& json) {
  const auto type = json.at("type");
  json.require(steps_.size() < kMostNormalizers, ": more than ", kMostNormalizers, " steps");
  if (auto step = form(type.string())) return steps_.push_back(std::move(step));
  if (type.string() == "Replace") return add_replace(json);
  if (type.string() == "Strip") return add_strip(json);
  if (type.string() == "BertNormalizer") return add_bert(json);
  if (type.string() == "Precompiled") return add_charsmap(json);
  if (type.string() == "Lowercase") return steps_.push_back([](std::string_view text) { return lowered(text); });
  if (type.string() == "Prepend")
    return steps_.push_back([prefix = json.at("prepend").string()](std::string_view text) {
      return text.empty() ? std::nullopt : std::optional(prefix + std::string(text));
    });
  type.require(type.string() == "Sequence", " is ", shown(type.json()),
               ", allowed: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, BertNormalizer, Precompiled, "
               "Sequence, or no normalizer");
  for (const auto& part : json.at("normalizers").items()) add(part);
}

void Normalizer::add_replace(const JsonView& json) {
  const auto replacement = std::make_shared<const Replacement>(json);
  const auto& content = replacement->content();
  const bool begins_with_space = content.starts_with(' ') || content.starts_with("\u2581");
  moves_start_ |= content.empty() || !(begins_with_space || replacement->replaces_one_character());
  steps_.push_back([replacement](std::string_view text) { return replacement->apply(text); });
}

void Normalizer::add_strip(const JsonView& json) {
  const bool left = json.at("strip_left").flag(), right = json.at("strip_right").flag();
  moves_start_ |= left;
  steps_.push_back([left, right](std::string_view text) { return std::string(without_spaces(text, left, right)); });
}

void Normalizer::add_bert(const JsonView& json) {
  moves_start_ = true;
  const auto bert = std::make_shared<BertNormalizer>();
  bert->clean_text = json.at("clean_text").flag();
  bert->handle_chinese_chars = json.at("handle_chinese_chars").flag();
  bert->lowercase = json.at("lowercase").flag();
  if (const auto strip = json.find("strip_accents")) bert->strip_accents = strip->flag();
  steps_.push_back([bert](std::string_view text) {
    std::string storage;
    return std::string(bert->normalized(text, storage));
  });
}

void Normalizer::add_charsmap(const JsonView& json) {
  const auto charsmap = std::make_shared<const Charsmap>(json);
  steps_.push_back([charsmap](std::string_view text) { return charsmap->apply(text); });
}

std::string_view Normalizer::operator()(std::string_view text, std::string& storage) const {
  const size_t most = kMostGrowth * (text.size() + 1);
  for (const auto& step : steps_) {
    auto result = step(text);
    if (!result) continue;
    EK_CHECK(result->size() <= most, kData, "normalizer: a text of ", text.size(), " bytes becomes one of ",
             result->size(), " bytes");
    storage = std::move(*result);
    text = storage;
  }
  return text;
}

}  // namespace evenkeel::tokenizer
