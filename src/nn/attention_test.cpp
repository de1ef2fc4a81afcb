#include "nn/attention.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "nn/testing.h"

namespace evenkeel {
namespace {

using testing::expect_gradients_match;
using testing::max_difference;
using testing::random_tensor;

// softmax(q K^T / sqrt(P)) V with a materialised causal mask, one sequence.
at::Tensor naive(const at::Tensor& q_LHP, const at::Tensor& k_LGP, const at::Tensor& v_LGP) {
  const int64_t groups = q_LHP.size(1) / k_LGP.size(1), length = q_LHP.size(0);
  const auto q = q_LHP.transpose(0, 1);
  const auto k = k_LGP.repeat_interleave(groups, 1).transpose(0, 1),
             v = v_LGP.repeat_interleave(groups, 1).transpose(0, 1);
  auto scores = at::bmm(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(q_LHP.size(2)));
  const auto mask = at::ones({length, length}, at::kBool).tril();
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

TEST(Attention, LongerThanTheQueriesTakenAtOnceEqualsTheWholeAtOnce) {
  const std::vector<int64_t> offsets{0, 70, 200};
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const auto leaf = [&](int64_t heads, int64_t seed) {
      return random_tensor({200, heads, 10}, seed, dtype).requires_grad_(true);
    };
    const auto q = leaf(4, 1), k = leaf(2, 2), v = leaf(2, 3), flow = random_tensor({200, 40}, 4, dtype);
    const auto packed = packed_attention(q, k, v, offsets);
    std::vector<at::Tensor> wholes;
    for (size_t b = 0; b + 1 < offsets.size(); ++b) {
      const auto rows = [&](const at::Tensor& x) { return x.slice(0, offsets[b], offsets[b + 1]); };
      wholes.push_back(naive(rows(q), rows(k), rows(v)));
    }
    const auto whole = at::cat(wholes);
    const double near = dtype == at::kDouble ? 1e-12 : 1e-5;
    EXPECT_LT(max_difference(packed, whole), near);
    const auto ours = torch::autograd::grad({packed}, {q, k, v}, {flow});
    const auto theirs = torch::autograd::grad({whole}, {q, k, v}, {flow});
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(max_difference(ours[i], theirs[i]), near) << i;
  }
}

TEST(Attention, ThreadsDoNotChangeBits) {
  const int before = at::get_num_threads();
  const auto q = random_tensor({150, 4, 16}, 1, at::kFloat), k = random_tensor({150, 2, 16}, 2, at::kFloat);
  std::vector<at::Tensor> by_threads;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    by_threads.push_back(packed_attention(q, k, k, std::vector<int64_t>{0, 3, 150}));
  }
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(by_threads[0], by_threads[1]));
  EXPECT_TRUE(at::equal(by_threads[0], by_threads[2]));
}

TEST(Attention, GradientsMatchCentralDifferencesWithSharedKeyHeads) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    const std::vector<int64_t> offsets{0, 3, 4, 9};
    expect_gradients_match(
        [&](const auto& in) { return packed_attention(in[0], in[1], in[2], offsets); },
        {random_tensor({9, 4, 6}, 1), random_tensor({9, kv_heads, 6}, 2), random_tensor({9, kv_heads, 6}, 3)});
  }
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
