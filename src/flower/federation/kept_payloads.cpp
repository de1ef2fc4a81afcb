#include "flower/federation/kept_payloads.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/files.h"

namespace evenkeel::flower {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;

}  // namespace

std::string payload_digest(const at::Tensor& payload_N) {
  if (!payload_N.defined() || payload_N.numel() == 0) return {};
  return sha256({static_cast<const char*>(payload_N.const_data_ptr()), payload_N.nbytes()});
}

const std::string& PayloadDigests::of(const at::Tensor& payload_N) {
  const bool same = last_N_.defined() && payload_N.defined() && last_N_.numel() == payload_N.numel() &&
                    last_N_.const_data_ptr() == payload_N.const_data_ptr();
  if (!same) digest_ = payload_digest(payload_N);
  last_N_ = payload_N;
  return digest_;
}

void KeptPayloads::add(const at::Tensor& payload_N) {
  const auto digest = payload_digest(payload_N);
  if (digest.empty() || find(digest).defined()) return;
  kept_.emplace_back(digest, payload_N);
  int64_t older = 0;
  size_t first = kept_.size() - 1;  // of those that stay
  while (first > 0 && std::ssize(kept_) - static_cast<int64_t>(first) < kMostKeptPayloads &&
         (older += kept_[first - 1].second.numel()) <= kMostBytes)
    --first;
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<int64_t>(first));
}

at::Tensor KeptPayloads::find(std::string_view digest) {
  const auto known = std::find_if(kept_.begin(), kept_.end(), [&](const auto& one) { return one.first == digest; });
  if (known == kept_.end()) return {};
  std::rotate(known, known + 1, kept_.end());
  return kept_.back().second;
}

}  // namespace evenkeel::flower
