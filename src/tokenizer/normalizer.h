/// \file  Normalises text before pre-tokenisation, with the normalizer of a tokenizer.json.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel::tokenizer {

/// The normalizer of a tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, BertNormalizer and
/// Sequences of them, as in the `tokenizers` library. Immutable and thread-safe.
class Normalizer {
 public:
  Normalizer() = default;  ///< changes nothing
  /// Reads a normalizer. \throws kData with the position of an unsupported kind or key.
  explicit Normalizer(const JsonView& json);

  /// Returns the normalised text: `text` itself if nothing changes, otherwise a view of `storage`. REQUIRES valid
  /// UTF-8.
  /// \throws kData if the text becomes more than about 1,000 times as long.
  std::string_view operator()(std::string_view text, std::string& storage) const;

  /// Returns true if a step may remove characters. Metaspace with prepend_scheme "first" is not supported after such a
  /// step.
  bool removes() const { return removes_; }

 private:
  /// Returns the changed text, or nothing if it is unchanged.
  using Step = std::function<std::optional<std::string>(std::string_view)>;

  void add(const JsonView& json);
  void add_replace(const JsonView& json);
  void add_strip(const JsonView& json);
  void add_bert(const JsonView& json);
  Step form(const std::string& type) const;

  std::vector<Step> steps_;
  bool removes_ = false;
};

}  // namespace evenkeel::tokenizer
