/// \file  Normalises text before pre-tokenisation, with the normalizer of a tokenizer.json.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel::tokenizer {

/// The normalizer of a tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, BertNormalizer,
/// Precompiled (charsmap.h) and Sequences of them, as in the `tokenizers` library. Immutable and thread-safe.
class Normalizer {
 public:
  Normalizer() = default;  ///< changes nothing
  /// Reads a normalizer. \throws kData with the position of an unsupported kind or key.
  explicit Normalizer(const JsonView& json);

  /// Returns the normalised text: `text` itself if nothing changes, otherwise a view of `storage`. REQUIRES valid
  /// UTF-8.
  /// \throws kData if the text becomes more than about 1,000 times as long.
  std::string_view operator()(std::string_view text, std::string& storage) const;

  /// Returns true if a step may remove the first character, or join it with others, so that the text may begin with a
  /// later one. Metaspace with prepend_scheme "first" is not supported after such a step. A text that begins with a
  /// space or with U+2581 does not count, because Metaspace prepends nothing to it.
  bool moves_start() const { return moves_start_; }

 private:
  /// Returns the changed text, or nothing if it is unchanged.
  using Step = std::function<std::optional<std::string>(std::string_view)>;

  void add(const JsonView& json);
  void add_replace(const JsonView& json);
  void add_strip(const JsonView& json);
  void add_bert(const JsonView& json);
  void add_charsmap(const JsonView& json);
  Step form(const std::string& type) const;

  std::vector<Step> steps_;
  bool moves_start_ = false;
};

}  // namespace evenkeel::tokenizer
