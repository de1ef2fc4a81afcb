/// \file  Payloads of scoring tasks that a node keeps, so that the server need not send them for each score. Tasks name
/// them by their SHA-256 (Envelope::payload_digest).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evenkeel::flower {

/// Largest number of payloads that a node keeps.
inline constexpr int64_t kMostKeptPayloads = 4;

/// Returns the SHA-256 of a payload [N] uint8; empty if it is undefined or has no bytes.
std::string payload_digest(const at::Tensor& payload_N);

/// Hashes payloads, each once. Threads: one.
class PayloadDigests {
 public:
  /// Returns payload_digest(payload_N). A tensor that shares the memory of an earlier one is not hashed again. The
  /// last payload is kept alive, so that its memory is not used for another one.
  const std::string& of(const at::Tensor& payload_N);

 private:
  at::Tensor last_N_;
  std::string digest_;
};

/// The payloads that a node keeps, in order of their last use: at most kMostKeptPayloads, and all but the last have at
/// most 1 GiB together. Threads: one.
class KeptPayloads {
 public:
  /// Keeps a payload [N] uint8, and drops others beyond the limits. Does nothing for a payload without bytes.
  void add(const at::Tensor& payload_N);
  /// Returns the payload with this SHA-256, which then counts as the last one used; undefined if it is not kept.
  at::Tensor find(std::string_view digest);
  /// Drops all payloads. A node calls it when a round of training begins.
  void clear() { kept_.clear(); }

 private:
  std::vector<std::pair<std::string, at::Tensor>> kept_;
};

}  // namespace evenkeel::flower
