/// \file  Reads the messages of a row, with all their keys. OpenAI's keys (role, content) and ShareGPT's (from, value)
/// are supported.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/plain/json.h"
#include "data/example.h"

namespace evenkeel::data {

/// One row of a file, as JSON. view() gives its keys in alphabetical order. in_order() gives them in the order of the
/// file, which chat templates see; its first call parses the row a second time. Not thread-safe.
class SourceRow {
 public:
  /// \param in_order  parses the same row again with tokenizer::chat_json(), which keeps the order of keys
  SourceRow(JsonView view, std::function<OrderedJson()> in_order)
      : view_(std::move(view)), read_in_order_(std::move(in_order)) {}
  const JsonView& view() const { return view_; }
  /// Returns the row with its keys in the order of the file, as tokenizer::chat_json() does.
  /// \throws kData if an object has more than kMostKeys keys (a look-up is linear in the number of keys).
  const OrderedJson& in_order() const;

 private:
  static constexpr size_t kMostKeys = 1000;
  JsonView view_;
  std::function<OrderedJson()> read_in_order_;
  mutable std::optional<OrderedJson> ordered_;
};

/// Selects the keys that a message may have.
enum class MessageKeys {
  kAll,        ///< all; a chat template receives them
  kTextAlone,  ///< role and text; a message with other keys is an error, because the template could not render them
};

/// Reads the list of messages under `key` into turns, in their order. The content of a message is a string, or a list
/// of parts {"type": "text", "text": ...}. An assistant's message that calls tools needs no content. `weight` 0
/// excludes an assistant's message from the loss. \throws kData with the position and the error.
std::vector<Turn> read_turns(const SourceRow& row, std::string_view key, MessageKeys keys);

/// Reads the template variables of a row into Row::variables: `tools`, `documents` and the entries of
/// `chat_template_kwargs`. `tools` and `documents` may also be strings that contain JSON. With kAll an empty list
/// counts as a value, because a template may distinguish it from none. \throws kData with the position; with kTextAlone
/// also if one of them has a value.
void read_variables(const SourceRow& row, MessageKeys keys, Row& into);

}  // namespace evenkeel::data
