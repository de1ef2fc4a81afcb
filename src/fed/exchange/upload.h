/// \file  Defines the upload of a reply: the tensors that a client sends after a task, in one of four forms. The form
/// determines where the upload is stored and whether it is encoded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "lora/payload.h"

namespace evenkeel::fed {

/// The size of a payload in bytes, in all and by content (EncodedPayload::parts).
struct PayloadSize {
  int64_t bytes = 0;
  std::map<std::string, int64_t> parts{};

  void visit(auto& field) {  // base/format/record.h
    field("bytes", bytes);
    field("parts", parts);
  }
};
PayloadSize size_of(const lora::EncodedPayload& payload);

/// The reply has no upload: it answers a Score, or a SumGradients for which no row was drawn.
struct NoUpload {};

/// The upload stays in the process that made it, which takes part in the aggregation (Fabric::sums). Only its size
/// arrives with the reply.
struct RemoteUpload {
  PayloadSize size;
};

/// An upload in exactly one form:
///   NoUpload         there is none
///   EncodedPayload   its bytes are part of the reply
///   DeferredPayload  its tensors are in this process and not encoded yet (Exchange::encodes); never sent in messages
///   RemoteUpload     its bytes are in another process
using Upload = std::variant<NoUpload, lora::EncodedPayload, lora::DeferredPayload, RemoteUpload>;

/// Returns the encoded upload, or null if the upload has another form. The pointer is valid as long as `upload`.
inline const lora::EncodedPayload* encoded_payload(const Upload& upload) {
  return std::get_if<lora::EncodedPayload>(&upload);
}

/// Encodes a deferred upload. Uploads of other forms are returned unchanged.
Upload encoded(Upload upload);

}  // namespace evenkeel::fed
