/// \file  The messages of a row, with all their keys: OpenAI's spelling (role, content) and ShareGPT's (from, value).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/plain/json.h"
#include "data/example.h"

namespace evenkeel {

/// A row of a file, whose keys can be had in their order, as templates see them. The order costs a second reading,
/// which is made only where it is asked for.
class SourceRow {
 public:
  /// \param in_order  reads the same row again
  SourceRow(JsonView view, std::function<OrderedJson()> in_order)
      : view_(std::move(view)), read_in_order_(std::move(in_order)) {}
  const JsonView& view() const { return view_; }
  /// \throws kData where an object has more keys than kMostKeys: each is looked up among all those before it.
  const OrderedJson& in_order() const;

 private:
  static constexpr size_t kMostKeys = 1000;
  JsonView view_;
  std::function<OrderedJson()> read_in_order_;
  mutable std::optional<OrderedJson> ordered_;
};

enum class MessageKeys {
  kAll,        ///< a chat template takes them
  kTextAlone,  ///< role and text are all that is written: a message that says more is refused
};

/// The list of messages under `key`. Content is a text, or a list of parts {"type": "text", "text": ...}; an assistant
/// that calls tools may have none. `weight` 0 takes an answer out of the loss.
/// \throws kData (place, what is wrong with it)
std::vector<Turn> read_turns(const SourceRow& row, std::string_view key, MessageKeys keys);

/// What the row gives its template beside messages: `tools`, `documents` and the entries of `chat_template_kwargs`.
/// `tools` may be JSON in a string.
void read_variables(const SourceRow& row, MessageKeys keys, Row& into);

}  // namespace evenkeel
