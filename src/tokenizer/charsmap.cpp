#include "tokenizer/charsmap.h"

#include <algorithm>

#include "base/plain/base64.h"
#include "base/plain/error.h"
#include "base/unicode/graphemes.h"
#include "base/unicode/unicode.h"

namespace evenkeel::tokenizer {
namespace {

constexpr size_t kLongestCluster = 5;        // bytes
constexpr size_t kLongestReplacement = 256;  // bytes; limit, because it stands for each occurrence in a text

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Fields of a unit of the double array.
uint64_t offset_of(uint32_t unit) { return static_cast<uint64_t>(unit >> 10) << ((unit & (1u << 9)) >> 6); }
uint32_t label_of(uint32_t unit) { return unit & ((1u << 31) | 0xFF); }
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & ((1u << 31) - 1); }

bool is_inside_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

}  // namespace

Charsmap::Charsmap(const JsonView& json) {
  const auto map = json.at("precompiled_charsmap");
  const auto bytes = from_base64(map.string());
  map.require(bytes.has_value(), " is no Base64");
  map.require(bytes->size() >= 4, " has ", bytes->size(), " bytes, expected a table");
  const size_t count = little_endian(*bytes) / 4, most = bytes->size() / 4 - 1;
  map.require(count > 0 && count <= most, " says that its trie has ", count, " units, allowed: 1 to ", most);
  units_.resize(count);
  for (size_t i = 0; i < count; ++i) units_[i] = little_endian(std::string_view(*bytes).substr(4 + 4 * i, 4));
  texts_ = bytes->substr(4 + 4 * count);
  map.require(unicode::find_invalid(texts_) == std::string::npos, " has texts that are no UTF-8");
}

uint32_t Charsmap::unit(uint64_t at) const {
  EK_CHECK(at < units_.size(), kData, "normalizer: precompiled_charsmap refers to its unit ", at, " of ",
           units_.size());
  return units_[at];
}

std::string_view Charsmap::text_at(size_t begin) const {
  EK_CHECK(begin <= texts_.size() && !is_inside_character(texts_, begin), kData,
           "normalizer: precompiled_charsmap refers to the byte ", begin, " of its texts of ", texts_.size(), " bytes");
  const auto rest = std::string_view(texts_).substr(begin, kLongestReplacement + 1);
  const size_t length = std::min(rest.find('\0'), rest.size());
  EK_CHECK(length <= kLongestReplacement, kData, "normalizer: precompiled_charsmap has a text of more than ",
           kLongestReplacement, " bytes");
  return rest.substr(0, length);
}

std::optional<std::string_view> Charsmap::replacement(std::string_view part) const {
  uint64_t at = offset_of(unit(0));
  for (const char byte : part) {
    const auto label = static_cast<unsigned char>(byte);
    if (label == 0) break;
    at ^= label;
    const uint32_t next = unit(at);
    if (label_of(next) != label) break;
    at ^= offset_of(next);
    if (has_value(next)) return text_at(value_of(unit(at)));
  }
  return std::nullopt;
}

/// Appends a cluster with replacements. Returns false if there is none.
bool Charsmap::append(std::string_view cluster, std::string& out) const {
  if (cluster.size() <= kLongestCluster)
    if (const auto whole = replacement(cluster)) return out += *whole, true;
  bool any = false;
  for (size_t at = 0; at < cluster.size();) {
    const auto part = cluster.substr(at, unicode::decode(cluster.data() + at).length);
    const auto found = replacement(part);
    any |= found.has_value();
    out += found.value_or(part);
    at += part.size();
  }
  return any;
}

std::optional<std::string> Charsmap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  bool any = false;
  while (!text.empty()) {
    const size_t length = unicode::grapheme_length(text);
    any |= append(text.substr(0, length), out);
    text.remove_prefix(length);
  }
  return any ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace evenkeel::tokenizer
