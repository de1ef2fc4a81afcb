#include "base/random/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/plain/error.h"
#include "base/random/box_muller.h"
#include "base/system/dispatch.h"

namespace evenkeel {
namespace {

constexpr double kUnit = 0x1.0p-53;
constexpr int kPhiloxRounds = 10;

/// The finaliser of SplitMix64: every input bit affects every output bit.
uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t absorb(uint64_t state, uint64_t word) { return mix(state + 0x9e3779b97f4a7c15ull) ^ mix(word + state); }

uint64_t absorb(uint64_t state, std::string_view text) {
  state = absorb(state, text.size());
  for (unsigned char byte : text) state = absorb(state, byte);
  return state;
}

/// Draws from the open interval (0, 1), so that the logarithm is finite.
double open_uniform(RandomStream& stream) { return (static_cast<double>(stream.next_u64() >> 11) + 0.5) * kUnit; }

/// Draws Gamma(alpha) by the rejection method of Marsaglia and Tsang. REQUIRES alpha >= 1.
double gamma_above_one(RandomStream& stream, double alpha) {
  const double d = alpha - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = stream.normal();
    const double base = 1.0 + c * x;
    if (base <= 0.0) continue;
    const double v = base * base * base;
    if (std::log(open_uniform(stream)) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

/// Returns the logarithm of a Gamma(alpha) draw. For small alpha the draw itself underflows, but its logarithm does
/// not.
double log_gamma_draw(RandomStream& stream, double alpha) {
  if (alpha >= 1.0) return std::log(gamma_above_one(stream, alpha));
  const double boosted = std::log(gamma_above_one(stream, alpha + 1.0));
  return boosted + std::log(open_uniform(stream)) / alpha;
}

using Counter = std::array<uint32_t, 4>;
using Key = std::array<uint32_t, 2>;

Counter philox_round(const Counter& counter, const Key& key) {
  const uint64_t left = 0xD2511F53ull * counter[0];
  const uint64_t right = 0xCD9E8D57ull * counter[2];
  return {static_cast<uint32_t>(right >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(right),
          static_cast<uint32_t>(left >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(left)};
}

Key next_key(const Key& key) { return {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u}; }

Counter advanced(Counter counter, uint64_t blocks) {
  blocks += static_cast<uint64_t>(counter[1]) << 32 | counter[0];
  return {static_cast<uint32_t>(blocks), static_cast<uint32_t>(blocks >> 32), counter[2], counter[3]};
}

constexpr size_t kBlocksAtOnce = 64;

/// The blocks of counter `first` and of the following counters, computed in vector lanes.
struct PhiloxBlocks {
  static EK_INLINE void run(const Counter& first, Key key, uint32_t* out) {
    std::array<std::array<uint32_t, kBlocksAtOnce>, 4> lanes;
    for (size_t i = 0; i < kBlocksAtOnce; ++i)
      for (size_t word = 0; word < 4; ++word) lanes[word][i] = advanced(first, i)[word];
    for (int round = 0; round < kPhiloxRounds; ++round, key = next_key(key)) {
      for (size_t i = 0; i < kBlocksAtOnce; ++i) {
        const auto next = philox_round({lanes[0][i], lanes[1][i], lanes[2][i], lanes[3][i]}, key);
        for (size_t word = 0; word < 4; ++word) lanes[word][i] = next[word];
      }
    }
    for (size_t i = 0; i < kBlocksAtOnce; ++i)
      for (size_t word = 0; word < 4; ++word) out[4 * i + word] = lanes[word][i];
  }
};

}  // namespace

RandomStream::RandomStream(uint64_t seed, std::string_view purpose, uint64_t key0, uint64_t key1) {
  const uint64_t key = absorb(absorb(0, seed), purpose);
  const uint64_t stream = absorb(absorb(~key, key0), key1);
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  counter_ = {0, 0, static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
}

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round, key = next_key(key)) counter = philox_round(counter, key);
  return counter;
}

uint32_t RandomStream::next_u32() {
  if (used_ == 4) {
    block_ = philox4x32(counter_, key_);
    counter_ = advanced(counter_, 1);
    used_ = 0;
  }
  return block_[used_++];
}

void RandomStream::fill(std::span<uint32_t> out) {
  constexpr size_t kAtOnce = 4 * kBlocksAtOnce;
  size_t i = 0;
  while (i < out.size() && used_ < 4) out[i++] = next_u32();
  for (; out.size() - i >= kAtOnce; i += kAtOnce) {
    vectorised<PhiloxBlocks>(counter_, key_, &out[i]);
    counter_ = advanced(counter_, kBlocksAtOnce);
  }
  while (i < out.size()) out[i++] = next_u32();
}

uint64_t RandomStream::next_u64() {
  const uint64_t low = next_u32();
  return low | static_cast<uint64_t>(next_u32()) << 32;
}

void RandomStream::skip(uint64_t words) {
  const uint64_t here = std::min<uint64_t>(words, 4 - used_);
  used_ += static_cast<int>(here);
  words -= here;
  counter_ = advanced(counter_, words / 4);
  for (words %= 4; words > 0; --words) next_u32();
}

double RandomStream::uniform() { return static_cast<double>(next_u64() >> 11) * kUnit; }

uint64_t RandomStream::below(uint64_t n) {
  EK_CHECK(n > 0, kInternal, "RandomStream::below: n is 0, allowed: 1 or more");
  const uint64_t rejected = -n % n;  // 2^64 mod n: the low products that would bias the result
  while (true) {
    const auto product = static_cast<unsigned __int128>(next_u64()) * n;
    if (static_cast<uint64_t>(product) >= rejected) return static_cast<uint64_t>(product >> 64);
  }
}

double RandomStream::normal() {
  const double radius = std::sqrt(-2.0 * std::log(open_uniform(*this)));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

double RandomStream::gamma(double alpha) {
  EK_CHECK(alpha > 0 && std::isfinite(alpha), kInternal, "RandomStream::gamma: alpha is ", alpha, ", allowed: above 0");
  return alpha >= 1.0 ? gamma_above_one(*this, alpha) : std::exp(log_gamma_draw(*this, alpha));
}

std::vector<double> RandomStream::dirichlet(double alpha, int64_t n) {
  EK_CHECK(n > 0, kInternal, "RandomStream::dirichlet: n is ", n, ", allowed: 1 or more");
  return dirichlet(std::vector<double>(static_cast<size_t>(n), alpha));
}

std::vector<double> RandomStream::dirichlet(std::span<const double> alphas) {
  const auto n = static_cast<uint64_t>(alphas.size());
  EK_CHECK(n > 0, kInternal, "RandomStream::dirichlet: no concentrations");
  std::vector<double> shares;
  for (const double alpha : alphas) {
    EK_CHECK(alpha > 0 && std::isfinite(alpha), kInternal, "RandomStream::dirichlet: alpha is ", alpha,
             ", allowed: above 0");
    shares.push_back(log_gamma_draw(*this, alpha));
  }
  const double top = *std::max_element(shares.begin(), shares.end());
  if (!std::isfinite(top)) {  // alpha is so small that even the logarithms overflow; the limit is one corner
    std::fill(shares.begin(), shares.end(), 0.0);
    shares[below(n)] = 1.0;
    return shares;
  }
  for (auto& share : shares) share = std::exp(share - top);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (auto& share : shares) share /= sum;
  return shares;
}

int64_t RandomStream::choose(std::span<const double> weights) {
  double total = 0;
  int64_t last = -1;
  for (size_t i = 0; i < weights.size(); ++i) {
    EK_CHECK(weights[i] >= 0 && std::isfinite(weights[i]), kInternal, "RandomStream::choose: weight ", i, " is ",
             weights[i], ", allowed: 0 or more");
    total += weights[i];
    if (weights[i] > 0) last = static_cast<int64_t>(i);
  }
  EK_CHECK(last >= 0, kInternal, "RandomStream::choose: all ", weights.size(), " weights are 0");
  double left = uniform() * total;
  for (int64_t i = 0; i < last; ++i) {
    left -= weights[i];
    if (left < 0) return i;
  }
  return last;
}

std::vector<int64_t> RandomStream::permutation(int64_t n) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  shuffle(std::span(order));
  return order;
}

void RandomStream::fill_uniform(std::span<float> out, double low, double high) {
  const double step = (high - low) * 0x1.0p-24;
  const auto below_high = std::nextafter(static_cast<float>(high), static_cast<float>(low));
  for (auto& value : out) {
    value = static_cast<float>(low + step * (next_u32() >> 8));
    if (value >= high) value = below_high;  // rounding to float may reach the open end
  }
}

void RandomStream::fill_normal(std::span<float> out, double scale) {
  std::array<uint32_t, 2 * kPairsAtOnce> words;
  std::array<float, 2 * kPairsAtOnce> normals;
  while (!out.empty()) {
    const size_t count = std::min(out.size(), normals.size()), pairs = (count + 1) / 2;
    fill(std::span(words).first(2 * pairs));
    box_muller(words.data(), pairs, scale, normals.data());
    std::copy_n(normals.begin(), count, out.begin());
    out = out.subspan(count);
  }
}

}  // namespace evenkeel
