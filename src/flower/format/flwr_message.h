/// \file  Declares the metadata of a Flower message: sender, receiver, message it replies to, time to live.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace evenkeel::flower {

/// The reason in an error reply. The numbers are Flower's.
enum class ErrorCode : int64_t {
  kUnknown = 0,
  kLoadFailed = 1,
  kRaised = 2,       ///< the node failed while it processed the message
  kMessageLost = 3,  ///< the message is not available
  kReplyLost = 4,    ///< the reply is not available
  kNodeUnavailable = 5,
  kPrecondition = 6,  ///< the node rejects the request
  kInvalidFab = 7,
  kCrashed = 8,
};

/// The largest number of bytes of a reason that is stored and shown.
inline constexpr size_t kMostReason = 2000;

struct Failure {
  ErrorCode code = ErrorCode::kUnknown;
  std::string reason;
  bool operator==(const Failure&) const = default;
};

struct Metadata {
  uint64_t run_id = 0;
  std::string message_id{};  ///< id of the Message object
  uint64_t src_node = 0, dst_node = 0;
  std::string reply_to{};  ///< id of the message that this replies to; empty in an instruction
  std::string group{};     ///< the round, as text
  double ttl = 0;          ///< seconds from created_at
  std::string type{};      ///< "train", "query", "evaluate", or "train.name"
  double created_at = 0;   ///< seconds since 1970
  std::optional<uint64_t> src_task{}, dst_task{};
  bool operator==(const Metadata&) const = default;
};

/// The tree of a message's objects. Ids are SHA-256 in hex; children are in the order of the object's head.
struct Tree {
  std::string id;
  std::vector<Tree> children{};
  bool operator==(const Tree&) const = default;
};

/// A message that a node has fetched.
struct Instruction {
  Metadata metadata;
  Tree tree;
  double arrived_at = 0;  ///< seconds since 1970, clock of this machine
};

}  // namespace evenkeel::flower
