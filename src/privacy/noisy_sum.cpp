#include "privacy/noisy_sum.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "base/plain/error.h"
#include "base/plain/sha256.h"
#include "crypto/hkdf.h"
#include "privacy/discrete_gaussian.h"

namespace evenkeel::privacy {
namespace {

constexpr double kBelowOne = 1 - 0x1p-20;
constexpr int64_t kValuesOfBlock = 4096;

/// Calls `sum(begin, end)` for each block of values, on all threads.
/// \return one result per block, in order
template <typename Result, typename Sum>
std::vector<Result> by_block(int64_t values, const Sum& sum) {
  const int64_t blocks = (values + kValuesOfBlock - 1) / kValuesOfBlock;
  std::vector<Result> results(static_cast<size_t>(blocks));
  at::parallel_for(0, blocks, 16, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      results[static_cast<size_t>(block)] = sum(block * kValuesOfBlock, std::min(values, (block + 1) * kValuesOfBlock));
  });
  return results;
}

/// Writes the integers of a change, scaled by `factor`. \return the sum of their squares
Uint128 round_to(std::vector<int64_t>& values, std::span<const float> change, double factor) {
  const auto sums = by_block<Uint128>(static_cast<int64_t>(change.size()), [&](int64_t begin, int64_t end) {
    Uint128 sum = 0;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const int64_t value = values[i] = std::llrint(factor * static_cast<double>(change[i]));
      sum += static_cast<Uint128>(std::abs(value)) * static_cast<Uint128>(std::abs(value));
    }
    return sum;
  });
  Uint128 all = 0;
  for (const auto sum : sums) all += sum;
  return all;
}

}  // namespace

Grid grid_of(int64_t values, double clip) {
  EK_CHECK(values >= 1, kConfig, "privacy: a change of ", values, " values, expected 1 or more");
  EK_CHECK(clip > 0 && std::isfinite(clip), kConfig, "privacy: the clip bound is ", clip, ", allowed: above 0");
  const double root = std::sqrt(static_cast<double>(values));
  int64_t bound = 1;
  while (static_cast<double>(bound) < 128 * root) bound *= 2;
  return {clip / static_cast<double>(bound), bound, static_cast<double>(bound) - root / 2};
}

double norm_of(std::span<const float> change) {
  const auto sums = by_block<double>(static_cast<int64_t>(change.size()), [&](int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double value = change[static_cast<size_t>(i)];
      sum += value * value;
    }
    return sum;
  });
  double all = 0;
  for (const double sum : sums) all += sum;
  EK_CHECK(std::isfinite(all), kNumeric, "privacy: a change has the norm ", std::sqrt(all));
  return std::sqrt(all);
}

ClippedChange clipped(std::span<const float> change, const Grid& grid, double weight) {
  EK_CHECK(weight >= 0 && weight <= 1, kInternal, "privacy: a change has the weight ", weight);
  const double norm = norm_of(change) / grid.step;
  ClippedChange result{std::vector<int64_t>(change.size()), weight, norm <= static_cast<double>(grid.bound)};
  if (norm > 0) result.factor *= std::min(1.0, grid.target * kBelowOne / norm);
  const auto most = static_cast<Uint128>(grid.bound) * static_cast<Uint128>(grid.bound);
  while (round_to(result.values, change, result.factor / grid.step) > most) result.factor *= kBelowOne;
  return result;
}

int64_t noise_variance(double noise, const Grid& grid) {
  const double deviation = noise * static_cast<double>(grid.bound);
  EK_CHECK(deviation > 0 && deviation * deviation <= static_cast<double>(kMostVariance), kConfig,
           "privacy: noise multiplier ", noise, " gives noise of ", deviation,
           " steps, allowed: above 0, up to 2^28; train fewer values, or choose a smaller noise multiplier");
  return static_cast<int64_t>(std::ceil(deviation * deviation));
}

crypto::Bytes32 digest_of(std::span<const int64_t> sum) {
  Sha256 digest;
  std::string bytes;
  for (const int64_t value : sum) {
    for (int byte = 0; byte < 8; ++byte) bytes += static_cast<char>(static_cast<uint64_t>(value) >> (8 * byte));
    if (bytes.size() >= (1 << 16)) digest.update(bytes), bytes.clear();
  }
  digest.update(bytes);
  return digest.bytes();
}

crypto::Secret noise_seed(const crypto::Secret& key, const NoisePurpose& purpose, std::span<const int64_t> sum) {
  std::string info = "evenkeel dp noise 1";
  info += '\0';
  info.append(purpose.run) += '\0';
  crypto::append_be64(info, purpose.round);
  info.append(purpose.name) += '\0';
  info.append(crypto::view_of(digest_of(sum)));
  return crypto::hkdf_expand(key, info);
}

}  // namespace evenkeel::privacy
