/// \file  Declares the calls of Flower's Fleet protocol as plain structs, and encodes and decodes them, for client and
/// server. Only calls.cpp and values.cpp include the code generated from fleet.proto.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flower/format/flwr_message.h"
#include "flower/format/record_dict.h"

namespace evenkeel::flower {

/// The paths of the calls. All are POST.
namespace path {
inline constexpr std::string_view kRegister = "/v1/fleet/register-node", kActivate = "/v1/fleet/activate-node",
                                  kDeactivate = "/v1/fleet/deactivate-node", kUnregister = "/v1/fleet/unregister-node",
                                  kHeartbeat = "/v1/fleet/send-node-heartbeat",
                                  kPullMessages = "/v1/fleet/pull-messages", kPushMessages = "/v1/fleet/push-messages",
                                  kPullObject = "/v1/fleet/pull-object", kPushObject = "/v1/fleet/push-object",
                                  kConfirm = "/v1/fleet/confirm-message-received", kGetRun = "/v1/fleet/get-run",
                                  kGetFab = "/v1/fleet/get-fab";
}  // namespace path

struct RegisterRequest {
  std::string public_key;  ///< PEM
  bool operator==(const RegisterRequest&) const = default;
};
struct ActivateRequest {
  std::string public_key;  ///< PEM
  double heartbeat_s = 0;  ///< announced interval of heartbeats, seconds
  bool operator==(const ActivateRequest&) const = default;
};
/// The answer to register and activate, and the request of deactivate and unregister.
struct NodeId {
  uint64_t node = 0;
  bool operator==(const NodeId&) const = default;
};
struct HeartbeatRequest {
  uint64_t node = 0;
  double heartbeat_s = 0;
  bool operator==(const HeartbeatRequest&) const = default;
};
struct HeartbeatResponse {
  bool success = false;
  bool operator==(const HeartbeatResponse&) const = default;
};

/// A message in a call: metadata, failure if any, and the tree of its objects.
struct CallMessage {
  Metadata metadata;
  bool has_content = false;  ///< true: the content field is present, though empty. A reply has content or a failure
  std::optional<Failure> failure{};
  Tree tree{};
  bool operator==(const CallMessage&) const = default;
};
struct PullMessagesRequest {
  uint64_t node = 0;
  bool operator==(const PullMessagesRequest&) const = default;
};
struct PullMessagesResponse {
  std::optional<CallMessage> message{};  ///< the first message; stock servers send at most one
  bool operator==(const PullMessagesResponse&) const = default;
};
struct PushMessagesRequest {
  uint64_t node = 0;
  std::optional<CallMessage> message{};  ///< the first message; others are ignored
  double runtime_s = 0;                  ///< seconds that the node worked on the message, as it reports them
  bool operator==(const PushMessagesRequest&) const = default;
};
struct PushMessagesResponse {
  std::string message_id{};                    ///< id of the message that the answer is about
  std::vector<std::string> objects_to_push{};  ///< ids of the objects that the server lacks
  std::string token{};                         ///< identifies the reply in the following pushes of objects
  bool operator==(const PushMessagesResponse&) const = default;
};

/// A request about one object. For a push, the content follows these bytes, see object_field().
struct ObjectRequest {
  uint64_t node = 0, run_id = 0;
  std::string object_id;
  std::string token{};  ///< token of a push
  bool operator==(const ObjectRequest&) const = default;
};
struct PushObjectRequest : ObjectRequest {
  std::string_view content{};  ///< view of the decoded bytes
  bool operator==(const PushObjectRequest&) const = default;
};
struct PushObjectResponse {
  bool stored = false;
  bool operator==(const PushObjectResponse&) const = default;
};
struct PullObjectResponse {
  bool found = false, available = false;  ///< found: the id is known; available: the object's bytes have arrived
  std::string_view content{};             ///< view of the decoded bytes
  bool operator==(const PullObjectResponse&) const = default;
};
struct ConfirmRequest {
  uint64_t node = 0, run_id = 0;
  std::string message_id;
  bool operator==(const ConfirmRequest&) const = default;
};
struct GetRunRequest {
  uint64_t node = 0, run_id = 0;
  bool operator==(const GetRunRequest&) const = default;
};
struct RunInfo {
  uint64_t run_id = 0;
  std::string fab_id, fab_version, fab_hash, started_at;
  bool running = true;
  bool operator==(const RunInfo&) const = default;
};
struct GetFabRequest {
  uint64_t node = 0, run_id = 0;
  std::string hash;
  bool operator==(const GetFabRequest&) const = default;
};
struct FabInfo {
  std::string hash, content;
  bool operator==(const FabInfo&) const = default;
};

/// Encodes a call. encode(ObjectRequest) of a push and encode(PullObjectResponse) leave out the content: it comes last,
/// after object_field().
std::string encode(const RegisterRequest& call);
std::string encode(const ActivateRequest& call);
std::string encode(const NodeId& call);
std::string encode(const HeartbeatRequest& call);
std::string encode(const HeartbeatResponse& call);
std::string encode(const PullMessagesRequest& call);
std::string encode(const PullMessagesResponse& call);
std::string encode(const PushMessagesRequest& call);
std::string encode(const PushMessagesResponse& call);
std::string encode(const ObjectRequest& call);
std::string encode(const PushObjectResponse& call);
std::string encode(const PullObjectResponse& call);
std::string encode(const ConfirmRequest& call);
std::string encode(const GetRunRequest& call);
std::string encode(const RunInfo& call);
std::string encode(const GetFabRequest& call);
std::string encode(const FabInfo& call);
/// object_field() returns the tag and length of an object's content; the bytes of the content follow. The constants are
/// the values of `field` for a pushed and a pulled object.
inline constexpr int kPushedField = 4, kPulledField = 3;
std::string object_field(int field, uint64_t bytes);

/// Decodes a call and ignores unknown fields. \throws kData when `body` is invalid
template <typename Call>
Call decode(std::string_view body);

/// Encode and decode the bodies of ConfigRecord and MetricRecord objects. \throws kData
std::string encode(const Config& record);
std::string encode(const Metrics& record);
Items decode_items(std::string_view body);
/// Encodes the body of a Message object: metadata without the message id, and the failure.
std::string encode_message(Metadata metadata, const std::optional<Failure>& failure);
CallMessage decode_message(std::string_view body);

}  // namespace evenkeel::flower
