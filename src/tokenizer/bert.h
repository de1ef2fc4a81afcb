/// \file  Normalises and splits text as BERT's tokenizers do. The results equal the `tokenizers` library's
/// BertNormalizer and BertPreTokenizer. Source: Devlin et al. 2019.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/unicode/unicode.h"

namespace evenkeel::tokenizer {

/// The settings of a BertNormalizer.
struct BertNormalizer {
  bool clean_text = true;               ///< removes control characters; white space becomes a space
  bool handle_chinese_chars = true;     ///< adds a space on both sides of each CJK ideograph
  std::optional<bool> strip_accents{};  ///< removes nonspacing marks; default: as `lowercase`
  bool lowercase = true;                ///< converts to lower case

  /// Returns the normalised text, a view of `storage`. REQUIRES valid UTF-8.
  std::string_view normalized(std::string_view text, std::string& storage) const;
};

/// Converts to lower case character by character. As in the library, a capital sigma at the end of a word becomes the
/// letter used inside words. REQUIRES valid UTF-8.
std::string lowered(std::string_view text);

/// Bits of bert_flags(): BERT's classes of code points. The library uses Unicode 8.
inline constexpr uint8_t kBertRemoved = 1;      ///< control, format, private use, U+0000 and U+FFFD
inline constexpr uint8_t kBertSpace = 2;        ///< white space
inline constexpr uint8_t kBertPunctuation = 4;  ///< a word of its own
inline constexpr uint8_t kBertMark = 8;         ///< nonspacing: an accent
inline constexpr uint8_t kBertIdeograph = 16;   ///< CJK

/// Returns a table of one byte per code point below 0x110000. It is built at the first call and never freed.
/// Thread-safe.
const uint8_t* bert_flags();

/// Calls `use(word)` for each word of a normalised text: each run without white space or punctuation, and each
/// punctuation character. The words are views into `text`. REQUIRES valid UTF-8.
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

}  // namespace evenkeel::tokenizer
