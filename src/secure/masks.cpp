#include "secure/masks.h"

#include <algorithm>
#include <bit>

#include "base/plain/error.h"
#include "base/system/parallel.h"
#include "crypto/chacha20.h"
#include "crypto/hkdf.h"
#include "crypto/x25519.h"

namespace evenkeel::secure {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read from streams lowest byte first");

constexpr uint64_t kValues = 0, kCounts = 1;  // sections of the streams
constexpr int64_t kStreamBytes = int64_t{1}
                                 << 18;  // bytes: a stream of this length and its target stay in a second-level cache

std::string_view text_of(const Bytes32& bytes) { return crypto::view_of(bytes); }

template <typename T>
void add_stream(std::span<const uint8_t> stream, bool subtract, T* to) {
  const auto* from = reinterpret_cast<const T*>(stream.data());
  const auto count = static_cast<int64_t>(stream.size() / sizeof(T));
  if (subtract)
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(to[i] - from[i]);
  else
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(to[i] + from[i]);
}

/// Adds the streams to integers that are stored as unsigned T.
template <typename T>
void apply_as(std::span<const MaskKey> keys, uint64_t section, void* data, int64_t bytes) {
  for_each_range(bytes, kStreamBytes, [&](int64_t begin, int64_t end) {
    std::vector<T> stream(static_cast<size_t>(end - begin) / sizeof(T));
    const std::span as_bytes(reinterpret_cast<uint8_t*>(stream.data()), static_cast<size_t>(end - begin));
    for (const auto& [key, subtract] : keys) {
      crypto::ChaCha20(key, section, static_cast<uint64_t>(begin) / crypto::ChaCha20::kBlock).read(as_bytes);
      add_stream<T>(as_bytes, subtract, reinterpret_cast<T*>(static_cast<char*>(data) + begin));
    }
    crypto::wipe(as_bytes);
  });
}

void add_streams(std::span<const MaskKey> keys, uint64_t section, const at::Tensor& ring_N) {
  EK_CHECK(ring_N.is_contiguous() && !ring_N.is_floating_point(), kInternal, "a mask for ",
           c10::toString(ring_N.scalar_type()));
  const auto bytes = static_cast<int64_t>(ring_N.nbytes());
  if (ring_N.element_size() == 2)
    apply_as<uint16_t>(keys, section, ring_N.mutable_data_ptr(), bytes);
  else if (ring_N.element_size() == 4)
    apply_as<uint32_t>(keys, section, ring_N.mutable_data_ptr(), bytes);
  else
    apply_as<uint64_t>(keys, section, ring_N.mutable_data_ptr(), bytes);
}

/// Appends the keys of the masks between `own` and each other member.
template <typename Wanted>
void add_pair_keys(std::vector<MaskKey>& keys, const Bytes32& context, Place own, const Secret& secret,
                   const std::map<Place, Bytes32>& publics, const Wanted& wanted) {
  for (const auto& [other, public_key] : publics)
    if (other != own && wanted(other)) keys.push_back({pair_key(context, own, secret, other, public_key), other < own});
}

}  // namespace

Secret pair_key(const Bytes32& context, Place own, const Secret& own_secret, Place other, const Bytes32& other_public) {
  const Bytes32 own_public = crypto::x25519_public(own_secret);
  const bool first = own < other;
  std::string info = "evenkeel secagg 1 pair";
  crypto::append_be16(info, static_cast<uint16_t>(std::min(own, other)));
  crypto::append_be16(info, static_cast<uint16_t>(std::max(own, other)));
  info += text_of(first ? own_public : other_public);
  info += text_of(first ? other_public : own_public);
  return crypto::hkdf(text_of(context), crypto::x25519(own_secret, other_public).view(), info);
}

Secret self_key(const Bytes32& context, Place own, const Secret& seed) {
  std::string info = "evenkeel secagg 1 self";
  crypto::append_be16(info, static_cast<uint16_t>(own));
  return crypto::hkdf(text_of(context), seed.view(), info);
}

std::vector<MaskKey> upload_keys(const Bytes32& context, Place own, const Secret& mask_secret, const Secret& seed,
                                 const std::map<Place, Bytes32>& publics) {
  std::vector<MaskKey> keys{{self_key(context, own, seed), false}};
  add_pair_keys(keys, context, own, mask_secret, publics, [](Place) { return true; });
  return keys;
}

std::vector<MaskKey> removal_keys(const Bytes32& context, const std::map<Place, Bytes32>& publics,
                                  const Recovered& recovered) {
  std::vector<MaskKey> keys;
  for (const auto& [place, public_key] : publics)
    EK_CHECK(recovered.seeds.contains(place) != recovered.secrets.contains(place), kInternal, "place ", place,
             " of a masked sum is recovered in both ways or in none");
  for (const auto& [place, seed] : recovered.seeds) keys.push_back({self_key(context, place, seed), true});
  // A lost member would have cancelled the survivors' streams: its own share of them is what is missing in the sum.
  for (const auto& [place, secret] : recovered.secrets)
    add_pair_keys(keys, context, place, secret, publics, [&](Place other) { return recovered.seeds.contains(other); });
  return keys;
}

void add_streams(std::span<const MaskKey> keys, const RingVector& vector) {
  add_streams(keys, kValues, vector.values);
  add_streams(keys, kCounts, vector.counts);
}

}  // namespace evenkeel::secure
