/// \file  Provides counter-based random streams. A stream is identified by its purpose, so reordering clients, resuming
/// a run or adding a thread does not change any draw. For the same (seed, purpose, keys), integers, uniform numbers and
/// those of fill_normal() are equal on every machine. Numbers of normal(), gamma() and dirichlet() may differ in the
/// last bits between C libraries.
/// Example:  RandomStream order(seed, "batches", round, client);  order.shuffle(rows);
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace evenkeel {

/// Returns one block of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// A stream of Philox blocks. A hash of (seed, purpose) is the Philox key. A hash of (seed, purpose, key0, key1) is the
/// upper half of the counter. It is cheap to create and to copy. It is not thread-safe.
class RandomStream {
 public:
  /// \param purpose  what the numbers are used for, e.g. "batches"
  /// \param key0, key1  distinguish streams of one purpose, e.g. round and client
  RandomStream(uint64_t seed, std::string_view purpose, uint64_t key0 = 0, uint64_t key1 = 0);

  /// Returns 64 random bits; takes two draws of 32 bits.
  uint64_t next_u64();
  /// Skips `words` draws of 32 bits in constant time, for example the draws of another thread. fill_uniform() takes one
  /// draw per value, fill_normal() two per pair of values.
  void skip(uint64_t words);
  /// Returns a number of U[0, 1) with 53 random bits.
  double uniform();
  /// Returns an unbiased integer in [0, n). REQUIRES n > 0.
  uint64_t below(uint64_t n);
  /// Returns a number of N(0, 1) (Box and Muller 1958).
  double normal();
  /// Returns a number of Gamma(alpha) with scale 1 (Marsaglia and Tsang 2000, boosted for alpha < 1). REQUIRES alpha >
  /// 0.
  double gamma(double alpha);
  /// Returns numbers that sum to 1, drawn from Dir(alphas). They are finite even for very small values. REQUIRES one
  /// value or more, all above 0.
  std::vector<double> dirichlet(std::span<const double> alphas);
  /// Returns `n` numbers drawn from Dir(alpha, ..., alpha). REQUIRES alpha > 0, n > 0.
  std::vector<double> dirichlet(double alpha, int64_t n);
  /// Returns an index with a probability proportional to its weight. REQUIRES weights that are finite and not negative,
  /// at least one above 0.
  int64_t choose(std::span<const double> weights);

  /// Shuffles the items in place (Fisher-Yates).
  template <typename T>
  void shuffle(std::span<T> items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }
  /// Returns 0 .. n-1 in random order.
  std::vector<int64_t> permutation(int64_t n);
  /// Fills `out` with U[low, high), 24 random bits per value.
  void fill_uniform(std::span<float> out, double low, double high);
  /// Fills `out` with scale * N(0, 1). No value is beyond 6.77 scale.
  void fill_normal(std::span<float> out, double scale);

 private:
  /// Returns the next 32 bits of the stream.
  uint32_t next_u32();
  /// Fills `out` with the next draws, many blocks at once in vector registers.
  void fill(std::span<uint32_t> out);

  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;  ///< words of block_ that were drawn
};

}  // namespace evenkeel
