#include "nn/attention.h"

#include <cmath>

#include "nn/testing.h"

namespace evenkeel {
namespace {

using testing::expect_gradients_match;
using testing::max_difference;
using testing::random_tensor;

// softmax(q K^T / sqrt(P)) V with a materialised causal mask, one sequence.
at::Tensor naive(const at::Tensor& q_LHP, const at::Tensor& k_LGP, const at::Tensor& v_LGP) {
  const int64_t groups = q_LHP.size(1) / k_LGP.size(1), length = q_LHP.size(0), cached = k_LGP.size(0) - length;
  const auto q = q_LHP.transpose(0, 1);
  const auto k = k_LGP.repeat_interleave(groups, 1).transpose(0, 1),
             v = v_LGP.repeat_interleave(groups, 1).transpose(0, 1);
  auto scores = at::bmm(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(q_LHP.size(2)));
  const auto mask = at::ones({length, k_LGP.size(0)}, at::kBool).tril(cached);
  scores = scores.masked_fill(mask.logical_not(), -1e30);
  return at::bmm(at::softmax(scores, 2), v).transpose(0, 1).reshape({length, -1});
}

TEST(Attention, PackedSequencesEqualEachSequenceAlone) {
  const std::vector<int64_t> offsets{0, 5, 6, 14};
  const auto q = random_tensor({14, 6, 4}, 1), k = random_tensor({14, 2, 4}, 2), v = random_tensor({14, 2, 4}, 3);
  const auto packed = packed_attention(q, k, v, offsets);
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    const auto rows = [&](const at::Tensor& x) { return x.slice(0, offsets[b], offsets[b + 1]); };
    EXPECT_LT(max_difference(rows(packed), naive(rows(q), rows(k), rows(v))), 1e-12);
  }
}

TEST(Attention, GradientsMatchCentralDifferencesWithSharedKeyHeads) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    const std::vector<int64_t> offsets{0, 3, 4, 9};
    expect_gradients_match(
        [&](const auto& in) { return packed_attention(in[0], in[1], in[2], offsets); },
        {random_tensor({9, 4, 6}, 1), random_tensor({9, kv_heads, 6}, 2), random_tensor({9, kv_heads, 6}, 3)});
  }
}

TEST(Attention, ACacheGivesWhatTheWholeSequenceGives) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const std::vector<int64_t> lengths{9, 4}, prompt{5, 2};
    const auto q = random_tensor({13, 4, 6}, 1, dtype), k = random_tensor({13, 2, 6}, 2, dtype),
               v = random_tensor({13, 2, 6}, 3, dtype);
    const auto whole = packed_attention(q, k, v, std::vector<int64_t>{0, 9, 13});
    auto cache = KvCache::make(1, lengths, 2, 6);
    const auto rows = [&](const at::Tensor& x, int64_t b, int64_t from, int64_t to) {
      return x.slice(0, (b ? 9 : 0) + from, (b ? 9 : 0) + to);
    };
    // Prompts of 5 and 2, then a block of 3 and 1 more, then what is left.
    const std::vector<std::vector<int64_t>> steps{{5, 2}, {8, 3}, {9, 4}};
    for (const auto& until : steps) {
      const auto join = [&](const at::Tensor& x) {
        return at::cat({rows(x, 0, cache.lengths[0], until[0]), rows(x, 1, cache.lengths[1], until[1])});
      };
      const std::vector<int64_t> offsets{0, until[0] - cache.lengths[0],
                                         until[0] - cache.lengths[0] + until[1] - cache.lengths[1]};
      const auto out = packed_attention(join(q), join(k), join(v), offsets, &cache.layers[0], cache.lengths);
      EXPECT_LT(max_difference(out, join(whole)), dtype == at::kFloat ? 1e-5 : 1e-12);
      cache.lengths = until;
    }
  }
}

TEST(KvCacheSelect, KeepsReordersAndCopiesSequences) {
  const std::vector<int64_t> capacity{3, 4};
  auto cache = KvCache::make(2, capacity, 1, 2);
  cache.lengths = {1, 2};
  for (auto& layer : cache.layers)
    for (size_t b = 0; b < 2; ++b) layer.keys[b].fill_(static_cast<double>(b));
  cache.select(std::vector<int64_t>{1, 1, 0});
  EXPECT_EQ(cache.lengths, std::vector<int64_t>({2, 2, 1}));
  cache.layers[1].keys[0].fill_(7);
  EXPECT_EQ(cache.layers[1].keys[1][0][0][0].item<float>(), 1.0f);
  EXPECT_EQ(cache.layers[1].keys[2].size(0), 3);
}

TEST(Rotary, TurnsPairsByPositionTimesFrequency) {
  const auto positions = at::tensor({0, 1, 7}, at::kLong);
  const auto table = rotary_table(positions, 4, 100.0);
  const auto x = random_tensor({3, 2, 4}, 1);
  const auto y = apply_rotary(x, table);
  EXPECT_TRUE(at::equal(y[0], x[0]));
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t j = 0; j < 2; ++j) {
      const double angle = positions[t].item<double>() * std::pow(100.0, -j / 2.0);
      const double a = x[t][1][j].item<double>(), b = x[t][1][j + 2].item<double>();
      EXPECT_NEAR(y[t][1][j].item<double>(), a * std::cos(angle) - b * std::sin(angle), 1e-6);
      EXPECT_NEAR(y[t][1][j + 2].item<double>(), b * std::cos(angle) + a * std::sin(angle), 1e-6);
    }
}

TEST(Rotary, GradientsMatchCentralDifferences) {
  const auto table = rotary_table(at::tensor({3, 0, 5}, at::kLong), 6, 10000.0);
  expect_gradients_match([&](const auto& in) { return apply_rotary(in[0], table); }, {random_tensor({3, 2, 6}, 1)});
}

}  // namespace
}  // namespace evenkeel
