#include "flower/federation/envelope.h"

#include <ATen/ATen.h>

#include <cstring>

#include "base/plain/error.h"
#include "base/plain/hex.h"
#include "base/plain/text.h"
#include "flower/format/objects.h"
#include "lora/packing.h"

namespace evenkeel::flower {
namespace {

constexpr const char *kRecord = "evenkeel", *kArrays = "arrays";
constexpr const char *kVersion = "version", *kRun = "run", *kKind = "kind", *kHeader = "header", *kHead = "head",
                     *kLayout = "layout", *kDigest = "payload", *kAudit = "audit", *kOutcome = "outcome";
constexpr size_t kDigits = 64;         // of a SHA-256
constexpr size_t kMostOutcome = 8192;  // bytes of a WorkOutcome

/// Returns NumPy's name of the type that carries `type`.
const char* numpy_type(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "float64";
    case at::kFloat:
      return "float32";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "uint16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kShort:
      return "int16";
    case at::kChar:
      return "int8";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      fail(kInternal, "no array carries ", c10::toString(type));
  }
}

std::string_view text_of(const at::Tensor& bytes_N) {
  return {static_cast<const char*>(bytes_N.const_data_ptr()), bytes_N.nbytes()};
}

ArrayHead head_of(const lora::PackedArray& array) {
  return {.name = array.name, .dtype = numpy_type(array.type), .shape = {array.numel()}};
}

Arrays arrays_of(const lora::Packing& packing, const at::Tensor& payload_N, size_t chunk_bytes) {
  const auto* bytes = static_cast<const std::byte*>(payload_N.const_data_ptr());
  std::vector<ArrayData> arrays;
  for (const auto& array : packing.arrays)
    arrays.push_back({head_of(array), {std::span(bytes + array.begin, static_cast<size_t>(array.bytes))}});
  return pack_arrays(std::move(arrays), {.chunk_bytes = chunk_bytes, .owner = std::make_shared<at::Tensor>(payload_N)});
}

/// Returns a text that an envelope need not have. \throws kData when it is longer than `most` bytes
std::string optional_text(const Config& record, const char* key, size_t most, const std::string& from) {
  if (!record.find(key)) return {};
  const auto text = record.at<std::string>(key);
  EK_CHECK(text.size() <= most, kData, from, " sends \"", key, "\" of ", text.size(), " bytes, allowed: up to ", most);
  return text;
}

/// Returns a SHA-256 that an envelope need not have. \throws kData for another text
std::string optional_digest(const Config& record, const char* key, const std::string& from) {
  auto text = optional_text(record, key, kDigits, from);
  EK_CHECK(text.empty() || is_hex(text, kDigits), kData, from, " sends \"", key,
           "\" that is no SHA-256 in 64 digits: ", shown(text));
  return text;
}

/// Reads the envelope in the records, without its payload.
Envelope envelope_in(const Config& record, const std::string& from) {
  const auto version = record.at<int64_t>(kVersion);
  EK_CHECK(version == kEnvelopeVersion, kData, from, " speaks version ", version,
           " of these envelopes, this is version ", kEnvelopeVersion);
  return {.run = record.at<std::string>(kRun),
          .kind = record.at<std::string>(kKind),
          .header = record.at<std::string>(kHeader),
          .payload_digest = optional_digest(record, kDigest, from),
          .audit = optional_digest(record, kAudit, from),
          .outcome = optional_text(record, kOutcome, kMostOutcome, from)};
}

/// Checks that arrays match the head of the payload. \throws kData
void check_heads(const lora::Packing& packing, const std::vector<ArrayHead>& heads, const std::string& from) {
  EK_CHECK(heads.size() == packing.arrays.size(), kData, from, " sends ", heads.size(), " arrays, the head of its ",
           "payload names ", packing.arrays.size());
  for (size_t i = 0; i < heads.size(); ++i) {
    const auto expected = head_of(packing.arrays[i]);
    EK_CHECK(heads[i] == expected, kData, from, " sends array ", heads[i].name, " of ", heads[i].dtype,
             ", the head of its payload says ", expected.name, " of ", expected.dtype, " and ", expected.shape[0],
             " numbers");
  }
}

ReceiveBuffers places_in(const lora::Packing& packing, at::Tensor& payload_N) {
  auto* bytes = static_cast<std::byte*>(payload_N.mutable_data_ptr());
  std::memcpy(bytes, packing.head.data(), packing.head.size());
  ReceiveBuffers places{.arrays = {}, .owner = std::make_shared<at::Tensor>(payload_N)};
  for (const auto& array : packing.arrays)
    places.arrays.emplace_back(bytes + array.begin, static_cast<size_t>(array.bytes));
  return places;
}

}  // namespace

bool is_mask_kind(std::string_view kind) {
  return kind == kMaskKeysEnvelope || kind == kMaskRosterEnvelope || kind == kMaskSharesEnvelope ||
         kind == kMaskSurvivorsEnvelope || kind == kUnmaskEnvelope;
}

struct EnvelopePacker::Packed {
  at::Tensor payload_N;
  lora::Packing packing;
  Arrays arrays;

  bool is(const at::Tensor& other_N) const {
    return payload_N.numel() == other_N.numel() &&
           std::memcmp(payload_N.const_data_ptr(), other_N.const_data_ptr(), payload_N.nbytes()) == 0;
  }
};

const EnvelopePacker::Packed& EnvelopePacker::packed(const at::Tensor& payload_N, const std::string& kind) {
  for (const auto& known : known_)
    if (known->is(payload_N)) return *known;
  auto packing = lora::pack_payload(text_of(payload_N), concat("the payload of a ", kind));
  auto arrays = arrays_of(packing, payload_N, chunk_bytes_);
  known_.push_back(std::make_shared<Packed>(Packed{payload_N, std::move(packing), std::move(arrays)}));
  return *known_.back();
}

Content EnvelopePacker::content(const Envelope& envelope) {
  Config record{{kVersion, kEnvelopeVersion}, {kRun, envelope.run}, {kKind, envelope.kind}, {kHeader, envelope.header}};
  for (const auto& [key, text] : {std::pair(kDigest, &envelope.payload_digest), std::pair(kAudit, &envelope.audit),
                                  std::pair(kOutcome, &envelope.outcome)})
    if (!text->empty()) record.set(key, *text);
  Content content;
  const bool bare = !envelope.payload_N.defined() || envelope.payload_N.numel() == 0;
  if (!bare) {
    const auto& payload = packed(envelope.payload_N, envelope.kind);
    record.set(kHead, Bytes{payload.packing.head});
    record.set(kLayout, payload.packing.layout);
    content.add(kArrays, payload.arrays);
  }
  content.add(kRecord, std::move(record));
  return content;
}

struct IncomingEnvelope::State {
  std::string from;
  Consent consent;
  Allocate allocate;
  Envelope envelope{};

  ReceiveBuffers place(const Content& content) {
    const auto& record = content.config(kRecord);
    envelope = envelope_in(record, from);
    EK_CHECK(envelope.payload_digest.empty() || !record.find(kHead), kData, from, " sends a payload twice");
    if (!record.find(kHead)) {
      EK_CHECK(content.heads().empty(), kData, from, " sends arrays without the head of a payload");
      consent(envelope, 0);
      return {};
    }
    const auto packing = lora::pack_payload(record.at<Bytes>(kHead).data, from);
    EK_CHECK(packing.layout == record.at<std::string>(kLayout), kData, from,
             " sends a payload of another layout than it says");
    check_heads(packing, content.heads(), from);
    if (!consent(envelope, packing.bytes)) return {.arrays = {}, .wanted = false};
    envelope.payload_N = allocate ? allocate(packing.bytes) : at::empty({packing.bytes}, at::kByte);
    return places_in(packing, envelope.payload_N);
  }
};

IncomingEnvelope::IncomingEnvelope(std::string from, Consent consent, Allocate allocate)
    : state_(std::make_shared<State>(State{std::move(from), std::move(consent), std::move(allocate)})) {}

BufferAllocator IncomingEnvelope::allocator() {
  return [state = state_](const Content& content) { return state->place(content); };
}

const Envelope& IncomingEnvelope::envelope() const {
  EK_CHECK(!state_->envelope.kind.empty(), kData, state_->from, " sent no envelope");
  return state_->envelope;
}

}  // namespace evenkeel::flower
