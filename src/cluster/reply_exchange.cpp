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

at::Tensor received_part(Collective& group, int from, int64_t size) {
  EK_CHECK(size >= 0 && size <= kMost, kData, "rank ", from, " announces ", size, " bytes");
  auto bytes_N = at::empty({size}, at::kByte);
  group.receive(bytes_of(bytes_N), from);
  return bytes_N;
}

}  // namespace

void ReplyHeader::check(const ReplyHeader& got) const {
  EK_CHECK(got.epoch == epoch, kData, "a reply of client ", got.client, " belongs to group ", got.epoch, ", this is ",
           epoch);
  EK_CHECK(got.round == round, kData, "a reply of client ", got.client, " belongs to round ", got.round + 1,
           ", this is ", round + 1);
  EK_CHECK(got.layout == layout, kData, "a reply of client ", got.client, " is of another model");
}

int64_t layout_of(const Sites& sites) {
  std::ostringstream text;
  for (const auto& [name, site] : sites)
    text << name << ' ' << site.experts << ' ' << site.in << ' ' << site.out << '\n';
  return parse_number<int64_t>(sha256(text.str()).substr(0, 15), 16).value();
}

void send_reply(Collective& group, int to, ReplyHeader header, const Reply& reply) {
  Reply plain{.client = reply.client, .payload = {.bytes = {}, .parts = reply.payload.parts}, .report = reply.report};
  const auto message = to_bytes(plain);
  const auto memory = reply.memory.empty() ? at::empty({0}, at::kByte) : encode_safetensors(reply.memory);
  const auto crossed = reply.crossed ? tensor_of(record::write(*reply.crossed).dump()) : at::empty({0}, at::kByte);
  header.client = reply.client;
  header.message = message.numel();
  header.payload = reply.payload.size();
  header.memory = memory.numel();
  header.crossed = crossed.numel();
  group.send(bytes_of(header), to);
  group.send(bytes_of(message), to);
  if (header.payload > 0) group.send(bytes_of(reply.payload.bytes), to);
  group.send(bytes_of(memory), to);
  group.send(bytes_of(crossed), to);
}

Reply receive_reply(Collective& group, int from, const ReplyHeader& expected) {
  ReplyHeader header;
  group.receive(bytes_of(header), from);
  expected.check(header);
  const auto place = concat("a reply of rank ", from);
  auto reply = std::get<Reply>(from_bytes(received_part(group, from, header.message), place));
  const auto payload = received_part(group, from, header.payload);
  if (header.payload > 0) reply.payload.bytes = payload;
  const auto memory = received_part(group, from, header.memory);
  if (header.memory > 0) reply.memory = decode_safetensors(memory, place).tensors;
  const auto crossed = received_part(group, from, header.crossed);
  if (header.crossed > 0) {
    const Json json = parse_json({static_cast<const char*>(crossed.const_data_ptr()), crossed.nbytes()}, place);
    reply.crossed = record::read<Crossed>(JsonView(json, place));
  }
  EK_CHECK(reply.client == header.client, kData, place, ": of client ", reply.client, ", announced was ",
           header.client);
  return reply;
}

}  // namespace evenkeel::cluster
