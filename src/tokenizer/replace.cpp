#include "tokenizer/replace.h"

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/unicode/unicode.h"

namespace evenkeel::tokenizer {

namespace {

constexpr size_t kMostContent = 256;  // bytes by which each match is replaced

bool is_one_character(const JsonView& json) {
  const auto literal = json.at("pattern").find("String");
  const std::string text = literal ? literal->string() : "";
  return !text.empty() && unicode::decode(text.data()).length == text.size();
}

}  // namespace

SplitPattern pattern_of(const JsonView& json) {
  const auto pattern = json.at("pattern");
  const auto regex = pattern.find("Regex"), literal = pattern.find("String");
  pattern.require(regex || literal, " is ", shown(pattern.json()), ", expected {\"Regex\": ...} or {\"String\": ...}");
  return regex ? SplitPattern::regex(regex->string()) : SplitPattern::literal(literal->string());
}

Replacement::Replacement(const JsonView& json)
    : pattern_(pattern_of(json)), content_(json.at("content").string()), one_character_(is_one_character(json)) {
  json.at("content").require(content_.size() <= kMostContent, " has ", content_.size(), " bytes, allowed: up to ",
                             kMostContent);
}

std::optional<std::string> Replacement::apply(std::string_view text) const {
  const auto spans = pattern_.find(text);
  std::string out;
  bool any = false;
  for (const auto& span : spans) {
    any |= span.matched;
    out += span.matched ? std::string_view(content_) : text.substr(span.begin, span.end - span.begin);
  }
  return any ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace evenkeel::tokenizer
