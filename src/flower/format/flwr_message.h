/// \file  What is said about a message beside its content: from whom, in answer to what, for how long.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace evenkeel::wire {

/// What an error reply says was the matter; Flower's numbers.
enum class ErrorCode : int64_t {
  kUnknown = 0,
  kLoadFailed = 1,
  kRaised = 2,       ///< the node failed at its work
  kMessageLost = 3,  ///< the message is not available
  kReplyLost = 4,    ///< the reply is not available
  kNodeUnavailable = 5,
  kPrecondition = 6,  ///< the node does not do what it was asked for
  kInvalidFab = 7,
  kCrashed = 8,
};

/// Bytes of a reason that are kept and shown: a whole error message of ours, and a bound for others'.
inline constexpr size_t kMostReason = 2000;

struct Failure {
  ErrorCode code = ErrorCode::kUnknown;
  std::string reason;
  bool operator==(const Failure&) const = default;
};

struct Metadata {
  uint64_t run_id = 0;
  std::string message_id{};  ///< id of the message's object
  uint64_t src_node = 0, dst_node = 0;
  std::string reply_to{};  ///< message id of the instruction; empty in one
  std::string group{};     ///< the round, as text
  double ttl = 0;          ///< seconds from created_at
  std::string type{};      ///< "train", "query", "evaluate", or "train.name"
  double created_at = 0;   ///< seconds since 1970
  std::optional<uint64_t> src_task{}, dst_task{};
  bool operator==(const Metadata&) const = default;
};

/// The objects of a message, by SHA-256 in hex; children as in the object's head.
struct Tree {
  std::string id;
  std::vector<Tree> children{};
  bool operator==(const Tree&) const = default;
};

/// A message on its way to a node.
struct Instruction {
  Metadata metadata;
  Tree tree;
  double arrived_at = 0;  ///< on this machine's clock
};

}  // namespace evenkeel::wire
