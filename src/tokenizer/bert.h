/// \file  Text as BERT's tokenizers prepare it: normalised, then cut at white space and around punctuation, equal to
/// the `tokenizers` library's BertNormalizer and BertPreTokenizer. Source: Devlin et al. 2019.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/unicode/unicode.h"

namespace evenkeel {

/// The settings of a BertNormalizer.
struct BertNormalizer {
  bool clean_text = true;               ///< control characters vanish, white space becomes a space
  bool handle_chinese_chars = true;     ///< a space on either side of each CJK ideograph
  std::optional<bool> strip_accents{};  ///< nonspacing marks vanish; not said: as `lowercase`
  bool lowercase = true;

  /// `text` normalised: a view of `storage`. REQUIRES valid UTF-8.
  std::string_view normalized(std::string_view text, std::string& storage) const;
};

/// Lower case, character by character: a capital sigma at the end of a word becomes the one inside words, as in the
/// library. REQUIRES valid UTF-8.
std::string lowered(std::string_view text);

/// Bits of bert_flags(): what a code point is to BERT, whose library has these classes from Unicode 8.
inline constexpr uint8_t kBertRemoved = 1;      ///< control, format, private use, U+0000 and U+FFFD
inline constexpr uint8_t kBertSpace = 2;        ///< white space
inline constexpr uint8_t kBertPunctuation = 4;  ///< a word of its own
inline constexpr uint8_t kBertMark = 8;         ///< nonspacing: an accent
inline constexpr uint8_t kBertIdeograph = 16;   ///< CJK

/// One byte per code point below 0x110000; built at first use and kept.
const uint8_t* bert_flags();

/// Calls `use(word)` for each word of normalised text: runs without white space or punctuation, and each punctuation
/// character by itself.
template <typename Use>
void bert_words(std::string_view text, Use&& use) {
  const uint8_t* flags = bert_flags();
  size_t begin = 0;
  const auto finish = [&](size_t end) {
    if (end > begin) use(text.substr(begin, end - begin));
  };
  for (size_t at = 0; at < text.size();) {
    const auto code = unicode::decode(text.data() + at);
    const uint8_t kind = flags[code.value] & (kBertSpace | kBertPunctuation);
    if (kind != 0) {
      finish(at);
      if (kind & kBertPunctuation) use(text.substr(at, code.length));
      begin = at + code.length;
    }
    at += code.length;
  }
  finish(text.size());
}

}  // namespace evenkeel
