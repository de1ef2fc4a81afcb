// Fuzzes what a node sends to a server: a header, and after the first zero byte a payload, packed as arrays and checked
// against the expected message.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fed/exchange/message.h"
#include "fed/round/payload_check.h"
#include "fed/round/update_size.h"
#include "flower/federation/envelope.h"
#include "lora/packing.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace evenkeel;

const lora::Sites& sites() {
  static const lora::Sites all{{"model.layers.0.q", {0, 3, 2, {}}}, {"model.layers.0.up", {2, 3, 4, "model.layers.0"}}};
  return all;
}

const lora::Payload& expected() {
  static const lora::Payload payload{.adapters = lora::make_adapters(sites(), 2, 1.0, 1),
                                     .extras = {{"model.layers.0.counts", at::zeros({2}, at::kInt)}}};
  return payload;
}

const char* numpy_type(at::ScalarType type) {
  return type == at::kFloat ? "float32" : type == at::kBFloat16 ? "uint16" : type == at::kInt ? "int32" : "float64";
}

/// Returns the records of the payload without its data.
flower::Content content_of(std::string_view header, std::string_view payload) {
  flower::Config record{
      {"version", flower::kEnvelopeVersion}, {"run", "run"}, {"kind", "reply"}, {"header", std::string(header)}};
  flower::Content content;
  if (!payload.empty()) {
    const auto packing = lora::pack_payload(payload, "the input");
    record.set("head", flower::Bytes{packing.head});
    record.set("layout", packing.layout);
    flower::Arrays arrays;
    for (const auto& array : packing.arrays)
      arrays.heads.push_back({.name = array.name, .dtype = numpy_type(array.type), .shape = {array.numel()}});
    content.add("arrays", std::move(arrays));
  }
  content.add("evenkeel", std::move(record));
  return content;
}

void place(const flower::ReceiveBuffers& places, std::string_view data) {
  for (const auto array : places.arrays) {
    const size_t bytes = std::min(array.size(), data.size());
    std::memcpy(array.data(), data.data(), bytes);
    data.remove_prefix(bytes);
  }
}

}  // namespace

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  const size_t end = std::min(input.find('\0'), input.size());
  const auto payload = input.substr(std::min(end + 1, input.size()));
  flower::IncomingEnvelope incoming("the input", [](const flower::Envelope&, int64_t bytes) {
    EK_CHECK(bytes < (1 << 20), kData, "an envelope of ", bytes, " bytes");
    return true;
  });
  const auto content = content_of(input.substr(0, end), payload);
  const auto places = incoming.allocator()(content);
  if (!payload.empty())
    place(places, payload.substr(std::min(payload.size(), lora::pack_payload(payload, "x").head.size())));
  const auto& envelope = incoming.envelope();
  const auto message = fed::from_parts(envelope.header, envelope.payload_N, "the input");
  const auto* reply = std::get_if<fed::Reply>(&message);
  const auto* encoded = reply ? fed::encoded_payload(reply->upload) : nullptr;
  if (!encoded) return;
  const auto sent = lora::decode(encoded->bytes, "the input");
  fed::check_download(sent, sites(), {.rank = 2, .delta_rank = 4, .values = 1000}, "the input");
  fed::check_upload(sent, expected(), 2, "the input");
  if (!std::isfinite(fed::update_norm(sent, expected()))) fuzz::finding("a finite update moves without end", {});
}
