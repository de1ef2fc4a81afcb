/// \file  Converts the messages of a masked round, and what a node keeps of an attempt, to JSON and back. Bytes are
/// Base64. Reading checks lengths and places; secure/node_round.h and secure/server_round.h check the meaning.
#pragma once

#include "base/plain/json.h"
#include "secure/node_round.h"
#include "secure/round_messages.h"

namespace evenkeel::secure {

OrderedJson to_json(const RoundContext& context);
OrderedJson to_json(const KeysOfMember& keys);
OrderedJson to_json(const SharesOfMember& shares);
OrderedJson to_json(const Inbox& inbox);
OrderedJson to_json(const UnmaskRequest& request);
OrderedJson to_json(const UnmaskReply& reply);
OrderedJson to_json(const NodeAttempt& attempt);
OrderedJson to_json(const SummedSet& set);

/// Read what to_json() wrote. \throws the error kind of `view`, naming the place, for anything else
void from_json(const JsonView& view, RoundContext& context);
void from_json(const JsonView& view, KeysOfMember& keys);
void from_json(const JsonView& view, SharesOfMember& shares);
void from_json(const JsonView& view, Inbox& inbox);
void from_json(const JsonView& view, UnmaskRequest& request);
void from_json(const JsonView& view, UnmaskReply& reply);
void from_json(const JsonView& view, NodeAttempt& attempt);
void from_json(const JsonView& view, SummedSet& set);

/// Reads an object of one of these types.
template <typename T>
T read_as(const JsonView& view) {
  T value;
  from_json(view, value);
  return value;
}

}  // namespace evenkeel::secure
