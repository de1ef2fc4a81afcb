#include "tokenizer/metaspace.h"

#include <algorithm>
#include <array>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/unicode/unicode.h"

namespace evenkeel::tokenizer {

std::string Metaspace::written(std::string_view text, bool first) const {
  std::string out;
  for (const char byte : text) byte == ' ' ? out += replacement : out += byte;
  const bool prepends = scheme == kAlways || (scheme == kFirst && first);
  return prepends && !out.starts_with(replacement) ? replacement + out : out;
}

void Metaspace::words(std::string_view text, std::vector<std::string_view>& out) const {
  if (!splits) return out.push_back(text);
  while (!text.empty()) {
    const size_t next = std::min(text.find(replacement, 1), text.size());
    out.push_back(text.substr(0, next));
    text.remove_prefix(next);
  }
}

namespace {

Metaspace::Scheme scheme_of(const JsonView& json) {
  constexpr std::array<std::string_view, 3> kNames = {"always", "first", "never"};
  const auto name = json.string_or("prepend_scheme", "always");
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  json.require(found != kNames.end(), ".prepend_scheme is ", shown(name), ", allowed: ", join(kNames));
  json.require(name == "never" || json.flag_or("add_prefix_space", true), ".prepend_scheme is ", shown(name),
               " where add_prefix_space is false");
  return static_cast<Metaspace::Scheme>(found - kNames.begin());
}

}  // namespace

Metaspace metaspace_of(const JsonView& json) {
  const auto replacement = json.at("replacement");
  const auto& text = replacement.string();
  const bool one = !text.empty() && unicode::decode(text.data()).length == text.size();
  replacement.require(one, " is ", shown(replacement.json()), ", expected one character");
  return {text, scheme_of(json), json.flag_or("split", true)};
}

}  // namespace evenkeel::tokenizer
