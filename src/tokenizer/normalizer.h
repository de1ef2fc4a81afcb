/// \file  The normalizer of a tokenizer.json: what happens to a text before it is cut into words.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel {

/// NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, BertNormalizer and Sequences of them, as the `tokenizers`
/// library applies them. Immutable and thread-safe.
class Normalizer {
 public:
  Normalizer() = default;  ///< leaves texts as they are
  /// \throws kData with the place on a kind or key that is not supported.
  explicit Normalizer(const JsonView& json);

  /// `text` normalised: the text itself where nothing changes, else a view of `storage`. REQUIRES valid UTF-8.
  /// \throws kData when a text becomes a thousand times as long.
  std::string_view operator()(std::string_view text, std::string& storage) const;

  /// Whether a text may lose characters: the library then counts places in another way.
  bool removes() const { return removes_; }

 private:
  using Step = std::function<std::optional<std::string>(std::string_view)>;  ///< nothing: the text stays as it is

  void add(const JsonView& json);
  void add_replace(const JsonView& json);
  void add_strip(const JsonView& json);
  void add_bert(const JsonView& json);
  Step form(const std::string& type) const;

  std::vector<Step> steps_;
  bool removes_ = false;
};

}  // namespace evenkeel
