// Fuzzes messages between server and clients: their bytes, and the payload in them.
#include <ATen/ATen.h>

#include <cstring>

#include "fed/exchange/message.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace evenkeel;

at::Tensor bytes_of(std::string_view input) {
  auto bytes_N = at::empty({static_cast<int64_t>(input.size())}, at::kByte);
  if (!input.empty()) std::memcpy(bytes_N.mutable_data_ptr(), input.data(), input.size());
  return bytes_N;
}

at::Tensor sent_again(const fed::Message& message) {
  return std::visit([](const auto& kind) { return fed::to_bytes(kind); }, message);
}

const lora::EncodedPayload* payload_of(const fed::StateUpdate& update) { return &update.payload; }
const lora::EncodedPayload* payload_of(const fed::Task& task) { return &task.payload; }
const lora::EncodedPayload* payload_of(const fed::Reply& reply) { return fed::encoded_payload(reply.upload); }

}  // namespace

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  const auto message = fed::from_bytes(bytes_of(input), "the input");
  const auto once = sent_again(message), twice = sent_again(fed::from_bytes(once, "its bytes"));
  if (!once.equal(twice)) fuzz::finding("a message that does not arrive as it was sent", {});
  const auto* payload = std::visit([](const auto& kind) { return payload_of(kind); }, message);
  if (payload != nullptr && payload->size() > 0) lora::received(lora::decode(payload->bytes, "its payload"));
}
