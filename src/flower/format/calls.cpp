#include "flower/format/calls.h"

#include <fleet.pb.h>
#include <google/protobuf/io/coded_stream.h>

#include <limits>

#include "flower/format/protobuf.h"

namespace evenkeel::flower {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// ---- helpers for messages

fleet::Metadata to_wire(const Metadata& from) {
  fleet::Metadata to;
  to.set_run_id(from.run_id);
  to.set_message_id(from.message_id);
  to.set_src_node_id(from.src_node);
  to.set_dst_node_id(from.dst_node);
  to.set_reply_to_message_id(from.reply_to);
  to.set_group_id(from.group);
  to.set_ttl(from.ttl);
  to.set_message_type(from.type);
  to.set_created_at(from.created_at);
  if (from.src_task) to.set_src_task_id(*from.src_task);
  if (from.dst_task) to.set_dst_task_id(*from.dst_task);
  return to;
}

Metadata from_wire(const fleet::Metadata& from) {
  Metadata to{.run_id = from.run_id(),
              .message_id = from.message_id(),
              .src_node = from.src_node_id(),
              .dst_node = from.dst_node_id(),
              .reply_to = from.reply_to_message_id(),
              .group = from.group_id(),
              .ttl = from.ttl(),
              .type = from.message_type(),
              .created_at = from.created_at()};
  if (from.has_src_task_id()) to.src_task = from.src_task_id();
  if (from.has_dst_task_id()) to.dst_task = from.dst_task_id();
  return to;
}

void to_wire(const Tree& from, fleet::ObjectTree& to) {
  to.set_object_id(from.id);
  for (const auto& child : from.children) to_wire(child, *to.add_children());
}

/// Converts a tree. Protobuf limits the depth of nested messages to 100.
Tree from_wire(const fleet::ObjectTree& from) {
  Tree to{.id = from.object_id()};
  to.children.reserve(static_cast<size_t>(from.children_size()));
  for (const auto& child : from.children()) to.children.push_back(from_wire(child));
  return to;
}

fleet::Message message_of(const Metadata& metadata, bool has_content, const std::optional<Failure>& failure) {
  fleet::Message to;
  *to.mutable_metadata() = to_wire(metadata);
  if (has_content) to.mutable_content();
  if (failure) {
    to.mutable_error()->set_code(static_cast<int64_t>(failure->code));
    to.mutable_error()->set_reason(failure->reason);
  }
  return to;
}

CallMessage call_message_of(const fleet::Message& from) {
  CallMessage to{.metadata = from_wire(from.metadata()), .has_content = from.has_content()};
  if (from.has_error())
    to.failure = Failure{.code = static_cast<ErrorCode>(from.error().code()), .reason = from.error().reason()};
  return to;
}

/// Returns the first message with its tree, if there is one.
template <typename Call>
std::optional<CallMessage> first_of(const Call& call, std::string_view what) {
  EK_CHECK(call.messages_size() == call.trees_size(), kData, what, ": ", call.messages_size(), " messages and ",
           call.trees_size(), " trees");
  if (call.messages_size() == 0) return {};
  CallMessage message = call_message_of(call.messages(0));
  message.tree = from_wire(call.trees(0));
  return message;
}

template <typename Call>
void add_message(const CallMessage& message, Call& call) {
  *call.add_messages() = message_of(message.metadata, message.has_content, message.failure);
  to_wire(message.tree, *call.add_trees());
}

// ---- objects; their content is neither copied nor handled by generated code

/// An encoded call without the field of the object's content, and the content.
struct Split {
  std::string rest;
  std::string_view content;
};

Split split_content(std::string_view body, int field, std::string_view what) {
  const auto* data = reinterpret_cast<const uint8_t*>(body.data());
  EK_CHECK(body.size() <= static_cast<size_t>(std::numeric_limits<int>::max()), kData, what, " of ", body.size(),
           " bytes");
  CodedInputStream in(data, static_cast<int>(body.size()));
  Split split;
  const uint32_t wanted = static_cast<uint32_t>(field) << 3 | 2;
  size_t begin = 0;
  while (const uint32_t tag = in.ReadTag()) {
    uint32_t length = 0;
    uint64_t number = 0;
    bool read = true;
    switch (tag & 7) {
      case 0:
        read = in.ReadVarint64(&number);
        break;
      case 1:
        read = in.ReadLittleEndian64(&number);
        break;
      case 2:
        read = in.ReadVarint32(&length);
        break;
      case 5:
        read = in.ReadLittleEndian32(&length);
        length = 0;
        break;
      default:
        read = false;
    }
    const auto at = static_cast<size_t>(in.CurrentPosition());
    EK_CHECK(read && length <= body.size() - at && in.Skip(static_cast<int>(length)), kData, "no ", what, ": ",
             body.size(), " bytes that are not its protobuf");
    if (tag == wanted)
      split.content = body.substr(at, length);
    else
      split.rest.append(body.substr(begin, static_cast<size_t>(in.CurrentPosition()) - begin));
    begin = static_cast<size_t>(in.CurrentPosition());
  }
  EK_CHECK(begin == body.size(), kData, "no ", what, ": ", body.size(), " bytes that are not its protobuf");
  return split;
}

template <typename Call>
void fill_object(Call& to, uint64_t node, uint64_t run_id) {
  to.mutable_node()->set_node_id(node);
  to.set_run_id(run_id);
}

}  // namespace

std::string encode(const RegisterRequest& call) {
  fleet::RegisterNodeRequest to;
  to.set_public_key(call.public_key);
  return bytes_of(to);
}

std::string encode(const ActivateRequest& call) {
  fleet::ActivateNodeRequest to;
  to.set_public_key(call.public_key);
  to.set_heartbeat_interval(call.heartbeat_s);
  return bytes_of(to);
}

std::string encode(const NodeId& call) {
  fleet::RegisterNodeResponse to;
  to.set_node_id(call.node);
  return bytes_of(to);
}

std::string encode(const HeartbeatRequest& call) {
  fleet::HeartbeatRequest to;
  to.mutable_node()->set_node_id(call.node);
  to.set_heartbeat_interval(call.heartbeat_s);
  return bytes_of(to);
}

std::string encode(const HeartbeatResponse& call) {
  fleet::HeartbeatResponse to;
  to.set_success(call.success);
  return bytes_of(to);
}

std::string encode(const PullMessagesRequest& call) {
  fleet::PullMessagesRequest to;
  to.mutable_node()->set_node_id(call.node);
  return bytes_of(to);
}

std::string encode(const PullMessagesResponse& call) {
  fleet::PullMessagesResponse to;
  if (call.message) add_message(*call.message, to);
  return bytes_of(to);
}

std::string encode(const PushMessagesRequest& call) {
  fleet::PushMessagesRequest to;
  to.mutable_node()->set_node_id(call.node);
  if (call.message) add_message(*call.message, to);
  to.add_runtimes(call.runtime_s);
  return bytes_of(to);
}

std::string encode(const PushMessagesResponse& call) {
  fleet::PushMessagesResponse to;
  if (!call.message_id.empty()) (*to.mutable_results())[call.message_id] = 0;
  for (const auto& id : call.objects_to_push) to.add_objects_to_push(id);
  to.set_push_token(call.token);
  return bytes_of(to);
}

std::string encode(const ObjectRequest& call) {
  fleet::PushObjectRequest to;  // pulls and pushes have the same fields except for the token
  fill_object(to, call.node, call.run_id);
  to.set_object_id(call.object_id);
  to.set_push_token(call.token);
  return bytes_of(to);
}

std::string encode(const PushObjectResponse& call) {
  fleet::PushObjectResponse to;
  to.set_stored(call.stored);
  return bytes_of(to);
}

std::string encode(const PullObjectResponse& call) {
  fleet::PullObjectResponse to;
  to.set_found(call.found);
  to.set_available(call.available);
  return bytes_of(to);
}

std::string encode(const ConfirmRequest& call) {
  fleet::ConfirmMessageReceivedRequest to;
  fill_object(to, call.node, call.run_id);
  to.set_message_object_id(call.message_id);
  return bytes_of(to);
}

std::string encode(const GetRunRequest& call) {
  fleet::GetRunRequest to;
  fill_object(to, call.node, call.run_id);
  return bytes_of(to);
}

std::string encode(const RunInfo& call) {
  fleet::GetRunResponse to;
  auto& run = *to.mutable_run();
  run.set_run_id(call.run_id);
  run.set_fab_id(call.fab_id);
  run.set_fab_version(call.fab_version);
  run.set_fab_hash(call.fab_hash);
  run.set_pending_at(call.started_at);
  run.set_starting_at(call.started_at);
  run.set_running_at(call.started_at);
  run.mutable_status()->set_status(call.running ? "running" : "finished");
  run.set_federation("evenkeel");
  run.set_primary_task_type("flwr-serverapp");
  run.set_series_id(1);
  return bytes_of(to);
}

std::string encode(const GetFabRequest& call) {
  fleet::GetFabRequest to;
  fill_object(to, call.node, call.run_id);
  to.set_hash(call.hash);
  return bytes_of(to);
}

std::string encode(const FabInfo& call) {
  fleet::GetFabResponse to;
  to.mutable_fab()->set_hash(call.hash);
  to.mutable_fab()->set_content(call.content);
  return bytes_of(to);
}

std::string object_field(int field, uint64_t bytes) {
  std::string out(16, '\0');
  auto* begin = reinterpret_cast<uint8_t*>(out.data());
  auto* end = CodedOutputStream::WriteTagToArray(static_cast<uint32_t>(field) << 3 | 2, begin);
  end = CodedOutputStream::WriteVarint64ToArray(bytes, end);
  out.resize(static_cast<size_t>(end - begin));
  return out;
}

template <>
RegisterRequest decode(std::string_view body) {
  return {parsed<fleet::RegisterNodeRequest>(body, "RegisterNode").public_key()};
}

template <>
ActivateRequest decode(std::string_view body) {
  const auto from = parsed<fleet::ActivateNodeRequest>(body, "ActivateNode");
  return {.public_key = from.public_key(), .heartbeat_s = from.heartbeat_interval()};
}

template <>
NodeId decode(std::string_view body) {
  return {parsed<fleet::RegisterNodeResponse>(body, "node id").node_id()};
}

template <>
HeartbeatRequest decode(std::string_view body) {
  const auto from = parsed<fleet::HeartbeatRequest>(body, "SendNodeHeartbeat");
  return {.node = from.node().node_id(), .heartbeat_s = from.heartbeat_interval()};
}

template <>
HeartbeatResponse decode(std::string_view body) {
  return {parsed<fleet::HeartbeatResponse>(body, "answer to SendNodeHeartbeat").success()};
}

template <>
PullMessagesRequest decode(std::string_view body) {
  return {parsed<fleet::PullMessagesRequest>(body, "PullMessages").node().node_id()};
}

template <>
PullMessagesResponse decode(std::string_view body) {
  return {first_of(parsed<fleet::PullMessagesResponse>(body, "answer to PullMessages"), "answer to PullMessages")};
}

template <>
PushMessagesRequest decode(std::string_view body) {
  const auto from = parsed<fleet::PushMessagesRequest>(body, "PushMessages");
  return {.node = from.node().node_id(),
          .message = first_of(from, "PushMessages"),
          .runtime_s = from.runtimes_size() > 0 ? from.runtimes(0) : 0};
}

template <>
PushMessagesResponse decode(std::string_view body) {
  const auto from = parsed<fleet::PushMessagesResponse>(body, "answer to PushMessages");
  return {.message_id = from.results().empty() ? std::string() : from.results().begin()->first,
          .objects_to_push = {from.objects_to_push().begin(), from.objects_to_push().end()},
          .token = from.push_token()};
}

template <>
ObjectRequest decode(std::string_view body) {
  const auto from = parsed<fleet::PullObjectRequest>(body, "PullObject");
  return {.node = from.node().node_id(), .run_id = from.run_id(), .object_id = from.object_id()};
}

template <>
PushObjectRequest decode(std::string_view body) {
  const Split split = split_content(body, kPushedField, "PushObject");
  const auto from = parsed<fleet::PushObjectRequest>(split.rest, "PushObject");
  PushObjectRequest to;
  to.node = from.node().node_id();
  to.run_id = from.run_id();
  to.object_id = from.object_id();
  to.token = from.push_token();
  to.content = split.content;
  return to;
}

template <>
PushObjectResponse decode(std::string_view body) {
  return {parsed<fleet::PushObjectResponse>(body, "answer to PushObject").stored()};
}

template <>
PullObjectResponse decode(std::string_view body) {
  const Split split = split_content(body, kPulledField, "answer to PullObject");
  const auto from = parsed<fleet::PullObjectResponse>(split.rest, "answer to PullObject");
  return {.found = from.found(), .available = from.available(), .content = split.content};
}

template <>
ConfirmRequest decode(std::string_view body) {
  const auto from = parsed<fleet::ConfirmMessageReceivedRequest>(body, "ConfirmMessageReceived");
  return {.node = from.node().node_id(), .run_id = from.run_id(), .message_id = from.message_object_id()};
}

template <>
GetRunRequest decode(std::string_view body) {
  const auto from = parsed<fleet::GetRunRequest>(body, "GetRun");
  return {.node = from.node().node_id(), .run_id = from.run_id()};
}

template <>
GetFabRequest decode(std::string_view body) {
  const auto from = parsed<fleet::GetFabRequest>(body, "GetFab");
  return {.node = from.node().node_id(), .run_id = from.run_id(), .hash = from.hash()};
}

std::string encode_message(Metadata metadata, const std::optional<Failure>& failure) {
  metadata.message_id.clear();
  return bytes_of(message_of(metadata, false, failure));
}

CallMessage decode_message(std::string_view body) { return call_message_of(parsed<fleet::Message>(body, "Message")); }

}  // namespace evenkeel::flower
