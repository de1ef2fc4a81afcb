#include "cluster/reply_exchange.h"

#include <ATen/ATen.h>

#include "base/plain/files.h"
#include "base/plain/text.h"

namespace evenkeel::cluster {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

std::span<std::byte> bytes_of(ReplyHeader& header) { return std::as_writable_bytes(std::span(&header, 1)); }

at::Tensor tensor_of(const std::string& text) {
  auto bytes_N = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes_N.mutable_data_ptr<uint8_t>());
  return bytes_N;
}

std::string_view text_of(const at::Tensor& bytes_N) {
  return {static_cast<const char*>(bytes_N.const_data_ptr()), bytes_N.nbytes()};
}

/// The sizes in a reply that a message (fed/exchange/message.h) does not contain.
struct ReplySizes {
  std::optional<fed::PayloadSize> task{}, remote_upload{};

  void visit(auto& field) {
    field("task", task);
    field("remote_upload", remote_upload);
  }
};

ReplySizes sizes_in(const fed::Reply& reply) {
  ReplySizes sizes{.task = reply.task_size};
  if (const auto* remote = std::get_if<fed::RemoteUpload>(&reply.upload)) sizes.remote_upload = remote->size;
  return sizes;
}

ReplySizes sizes_from(const at::Tensor& text_N, const std::string& source) {
  const Json json = parse_json(text_of(text_N), source);
  return record::read<ReplySizes>(JsonView(json, source));
}

at::Tensor received_part(Collective& group, int from, int64_t size) {
  EK_CHECK(size >= 0 && size <= kMost, kData, "rank ", from, " announces ", size, " bytes");
  auto bytes_N = at::empty({size}, at::kByte);
  group.receive(bytes_of(bytes_N), from);
  return bytes_N;
}

}  // namespace

void ReplyHeader::check(const ReplyHeader& got) const {
  EK_CHECK(got.group == group, kData, "a reply of client ", got.client, " belongs to group ", got.group, ", this is ",
           group);
  EK_CHECK(got.round == round, kData, "a reply of client ", got.client, " belongs to round ", got.round + 1,
           ", this is ", round + 1);
  EK_CHECK(got.layout == layout, kData, "a reply of client ", got.client, " is of another model");
}

int64_t layout_of(const lora::Sites& sites) {
  return parse_number<int64_t>(sha256(lora::layout_text(sites)).substr(0, 15), 16).value();
}

void send_reply(Collective& group, int to, ReplyHeader header, const fed::Reply& reply) {
  const auto message = tensor_of(fed::header_of(reply));
  const auto* payload = fed::encoded_payload(reply.upload);
  const auto memory = reply.memory.empty() ? at::empty({0}, at::kByte) : encode_safetensors(reply.memory);
  const auto sizes = tensor_of(record::write(sizes_in(reply)).dump());
  header.client = reply.client;
  header.message = message.numel();
  header.payload = payload ? payload->size() : 0;
  header.memory = memory.numel();
  header.sizes = sizes.numel();
  group.send(bytes_of(header), to);
  group.send(bytes_of(message), to);
  if (payload) group.send(bytes_of(payload->bytes), to);
  group.send(bytes_of(memory), to);
  group.send(bytes_of(sizes), to);
}

fed::Reply receive_reply(Collective& group, int from, const ReplyHeader& expected) {
  ReplyHeader header;
  group.receive(bytes_of(header), from);
  expected.check(header);
  const auto source = concat("a reply of rank ", from);
  const auto message = received_part(group, from, header.message);
  const auto payload = received_part(group, from, header.payload);
  auto reply = std::get<fed::Reply>(fed::from_parts(text_of(message), payload, source));
  const auto memory = received_part(group, from, header.memory);
  if (header.memory > 0) reply.memory = decode_safetensors(memory, source).tensors;
  auto sizes = sizes_from(received_part(group, from, header.sizes), source);
  reply.task_size = std::move(sizes.task);
  if (sizes.remote_upload) reply.upload = fed::RemoteUpload{std::move(*sizes.remote_upload)};
  EK_CHECK(reply.client == header.client, kData, source, ": of client ", reply.client, ", announced was ",
           header.client);
  return reply;
}

}  // namespace evenkeel::cluster
