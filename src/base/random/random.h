/// \file  Counter-based random streams. A stream is named by what it is for, so that reordering clients, resuming a run
/// or adding a thread cannot change a draw: same (seed, purpose, keys) -> same numbers, on every machine. Example:
/// RandomStream order(seed, "batches", round, client);  order.shuffle(rows);
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace evenkeel {

/// The block function of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// A stream of Philox blocks. (seed, purpose) make the key, (key0, key1) the upper half of the counter. Cheap to make,
/// cheap to copy; not thread-safe.
class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view purpose, uint64_t key0 = 0, uint64_t key1 = 0);

  uint64_t next_u64();
  /// Leaves out the next `words` draws of 32 bits, in no time: what another thread draws. A value of fill_uniform()
  /// takes one, a pair of fill_normal()'s two.
  void skip(uint64_t words);
  /// In [0, 1), 53 random bits.
  double uniform();
  /// In [0, n), unbiased. REQUIRES n > 0.
  uint64_t below(uint64_t n);
  /// Mean 0, variance 1 (Box-Muller).
  double normal();
  /// Gamma with shape `alpha` and scale 1 (Marsaglia and Tsang 2000, boosted for alpha < 1). REQUIRES alpha > 0.
  double gamma(double alpha);
  /// `n` numbers that sum to 1, drawn from Dir(alpha, ..., alpha). Never NaN, however small alpha is.
  std::vector<double> dirichlet(double alpha, int64_t n);
  /// An index drawn in proportion to `weights` (non-negative, not all zero).
  int64_t choose(std::span<const double> weights);

  /// Fisher-Yates, in place.
  template <typename T>
  void shuffle(std::span<T> items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }
  /// 0 .. n-1 in random order.
  std::vector<int64_t> permutation(int64_t n);
  /// Fills with U[low, high) (24 random bits each) or N(0, 1) * scale (tails end at 6.7 scale), in float32.
  void fill_uniform(std::span<float> out, double low, double high);
  void fill_normal(std::span<float> out, double scale);

 private:
  uint32_t next_u32();
  void fill(std::span<uint32_t> out);

  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace evenkeel
