#include "nn/attention/attention.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/plain/error.h"
#include "nn/dense/norm.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::expect_gradients_match;
using testing::max_difference;
using testing::random_tensor;

// Computes softmax(q K^T / sqrt(P)) V for one sequence with a materialised mask.
at::Tensor naive(const at::Tensor& q_LHP, const at::Tensor& k_LGP, const at::Tensor& v_LGP, int64_t window = 0,
                 double soft_cap = 0) {
  const int64_t groups = q_LHP.size(1) / k_LGP.size(1), length = q_LHP.size(0);
  const auto q = q_LHP.transpose(0, 1);
  const auto k = k_LGP.repeat_interleave(groups, 1).transpose(0, 1),
             v = v_LGP.repeat_interleave(groups, 1).transpose(0, 1);
  auto scores = at::bmm(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(q_LHP.size(2)));
  if (soft_cap > 0) scores = soft_cap * at::tanh(scores / soft_cap);
  auto mask = at::ones({length, length}, at::kBool).tril();
  if (window > 0) mask = mask.triu(1 - window);
  scores = scores.masked_fill(mask.logical_not(), -1e30);
  return at::bmm(at::softmax(scores, 2), v).transpose(0, 1).reshape({length, -1});
}

TEST(Attention, PackedSequencesEqualEachSequenceAlone) {
  const std::vector<int64_t> offsets{0, 5, 6, 14};
  const auto q = testing::random_tensor({14, 6, 4}, 1), k = testing::random_tensor({14, 2, 4}, 2),
             v = testing::random_tensor({14, 2, 4}, 3);
  const auto packed = packed_attention(q, k, v, offsets);
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    const auto rows = [&](const at::Tensor& x) { return x.slice(0, offsets[b], offsets[b + 1]); };
    EXPECT_LT(testing::max_difference(rows(packed), naive(rows(q), rows(k), rows(v))), 1e-12);
  }
}

TEST(Attention, SequencesLongerThanABlockOfQueriesEqualTheReference) {
  const std::vector<int64_t> offsets{0, 70, 200};
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const auto leaf = [&](int64_t heads, int64_t seed) {
      return testing::random_tensor({200, heads, 10}, seed, dtype).requires_grad_(true);
    };
    const auto q = leaf(4, 1), k = leaf(2, 2), v = leaf(2, 3), flow = testing::random_tensor({200, 40}, 4, dtype);
    const auto packed = packed_attention(q, k, v, offsets);
    std::vector<at::Tensor> wholes;
    for (size_t b = 0; b + 1 < offsets.size(); ++b) {
      const auto rows = [&](const at::Tensor& x) { return x.slice(0, offsets[b], offsets[b + 1]); };
      wholes.push_back(naive(rows(q), rows(k), rows(v)));
    }
    const auto whole = at::cat(wholes);
    const double tolerance = dtype == at::kDouble ? 1e-12 : 1e-5;
    EXPECT_LT(testing::max_difference(packed, whole), tolerance);
    const auto ours = torch::autograd::grad({packed}, {q, k, v}, {flow});
    const auto theirs = torch::autograd::grad({whole}, {q, k, v}, {flow});
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(testing::max_difference(ours[i], theirs[i]), tolerance) << i;
  }
}

TEST(Attention, AWindowHidesEarlierTokens) {
  const std::vector<int64_t> offsets{0, 70, 71, 260};
  const auto leaf = [](int64_t heads, int64_t seed) {
    return testing::random_tensor({260, heads, 10}, seed).requires_grad_(true);
  };
  const auto q = leaf(4, 1), k = leaf(2, 2), v = leaf(2, 3), flow = testing::random_tensor({260, 40}, 4);
  for (const int64_t window : {1, 5, 63, 64, 65, 150, 188}) {
    const auto packed = packed_attention(q, k, v, offsets, {.window = window});
    std::vector<at::Tensor> wholes;
    for (size_t b = 0; b + 1 < offsets.size(); ++b) {
      const auto rows = [&](const at::Tensor& x) { return x.slice(0, offsets[b], offsets[b + 1]); };
      wholes.push_back(naive(rows(q), rows(k), rows(v), window));
    }
    const auto whole = at::cat(wholes);
    EXPECT_LT(testing::max_difference(packed, whole), 1e-12) << window;
    const auto ours = torch::autograd::grad({packed}, {q, k, v}, {flow});
    const auto theirs = torch::autograd::grad({whole}, {q, k, v}, {flow});
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(testing::max_difference(ours[i], theirs[i]), 1e-12) << window;
  }
}

TEST(Attention, ASoftCapLimitsTheScores) {
  const std::vector<int64_t> offsets{0, 70, 71, 140};
  const auto leaf = [](int64_t heads, int64_t seed) {
    return (testing::random_tensor({140, heads, 10}, seed) * 2).detach().requires_grad_(true);
  };
  const auto q = leaf(4, 1), k = leaf(2, 2), v = leaf(2, 3), flow = testing::random_tensor({140, 40}, 4);
  for (const int64_t window : {0, 5, 65}) {
    const auto packed = packed_attention(q, k, v, offsets, {.window = window, .soft_cap = 1.5});
    std::vector<at::Tensor> wholes;
    for (size_t b = 0; b + 1 < offsets.size(); ++b) {
      const auto rows = [&](const at::Tensor& x) { return x.slice(0, offsets[b], offsets[b + 1]); };
      wholes.push_back(naive(rows(q), rows(k), rows(v), window, 1.5));
    }
    const auto whole = at::cat(wholes);
    EXPECT_LT(testing::max_difference(packed, whole), 1e-12) << window;
    EXPECT_GT(testing::max_difference(packed, packed_attention(q, k, v, offsets, {.window = window})), 1e-2) << window;
    const auto ours = torch::autograd::grad({packed}, {q, k, v}, {flow});
    const auto theirs = torch::autograd::grad({whole}, {q, k, v}, {flow});
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(testing::max_difference(ours[i], theirs[i]), 1e-12) << window;
  }
}

TEST(Attention, AWindowOfTheWholeSequenceChangesNoBit) {
  const std::vector<int64_t> offsets{0, 70, 200};
  const auto q = testing::random_tensor({200, 4, 10}, 1, at::kFloat),
             k = testing::random_tensor({200, 2, 10}, 2, at::kFloat);
  EXPECT_TRUE(at::equal(packed_attention(q, k, k, offsets, {.window = 130}), packed_attention(q, k, k, offsets)));
}

TEST(Attention, ThreadsDoNotChangeBits) {
  const int before = at::get_num_threads();
  const auto q = testing::random_tensor({150, 4, 16}, 1, at::kFloat),
             k = testing::random_tensor({150, 2, 16}, 2, at::kFloat);
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
    testing::expect_gradients_match([&](const auto& in) { return packed_attention(in[0], in[1], in[2], offsets); },
                                    {testing::random_tensor({9, 4, 6}, 1), testing::random_tensor({9, kv_heads, 6}, 2),
                                     testing::random_tensor({9, kv_heads, 6}, 3)});
  }
}

TEST(Attention, SharedRowsEqualSeparateRows) {
  const std::vector<int64_t> offsets{0, 5, 8, 15};
  const auto rows_T = at::tensor(std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1, 5, 0, 1, 2, 3, 6, 7, 8}, at::kLong);
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const auto leaf = [&](int64_t heads, int64_t seed) {
      return testing::random_tensor({9, heads, 10}, seed, dtype).requires_grad_(true);
    };
    const auto q = leaf(4, 1), k = leaf(2, 2), v = leaf(2, 3), norm = testing::random_tensor({10}, 4, dtype);
    const auto at =
        rotary_table(at::tensor(std::vector<int64_t>{0, 1, 2, 3, 4, 2, 4, 5, 6}, at::kLong), 10, {.theta = 100.0});
    const AttentionSteps steps{.q = {.norm = norm, .norm_eps = 1e-5, .rotary = at}, .k = {.rotary = at}};
    AttentionSteps of_tokens = steps;
    of_tokens.q.rotary = of_tokens.k.rotary = {at.cos.index_select(0, rows_T), at.sin.index_select(0, rows_T)};
    const auto each = [&](const at::Tensor& x) { return x.index_select(0, rows_T); };
    const auto shared = packed_attention(q, k, v, offsets, steps, rows_T);
    const auto own = packed_attention(each(q), each(k), each(v), offsets, of_tokens);
    EXPECT_LT(testing::max_difference(each(shared), own), dtype == at::kDouble ? 1e-14 : 1e-6);
    const auto flow = testing::random_tensor({15, 40}, 5, dtype);
    const auto ours = torch::autograd::grad({each(shared)}, {q, k, v}, {flow});
    const auto theirs = torch::autograd::grad({own}, {q, k, v}, {flow});
    for (size_t i = 0; i < ours.size(); ++i)
      EXPECT_LT(testing::max_difference(ours[i], theirs[i]), dtype == at::kDouble ? 1e-12 : 1e-5) << i;
  }
}

constexpr int64_t kStepsHeads = 6, kStepsKeyHeads = 2, kStepsWidth = 10;
const std::vector<int64_t> kStepsOffsets{0, 5, 6, 80};

struct StepsCase {
  std::string name;
  int64_t q_norm, k_norm;  // number of weights; 0: no norm
  std::optional<double> clip;
  bool rotated;
};
const std::vector<StepsCase> kStepsCases{
    {"nothing", 0, 0, {}, false},
    {"turned", 0, 0, {}, true},
    {"clipped", 0, 0, 0.7, true},
    {"normalised over all heads", kStepsHeads* kStepsWidth, kStepsKeyHeads* kStepsWidth, {}, true},
    {"normalised over all heads, clipped", kStepsHeads* kStepsWidth, kStepsKeyHeads* kStepsWidth, 0.7, true},
    {"normalised over each head", kStepsWidth, kStepsWidth, {}, true},
    {"normalised over each head, clipped", kStepsWidth, kStepsWidth, 0.7, true},
    {"normalised keys alone", 0, kStepsWidth, 0.7, false},
};

/// Returns q, k and v before the steps, then the weights of the norms.
std::vector<at::Tensor> inputs_of(const StepsCase& one, at::ScalarType dtype) {
  const int64_t tokens = kStepsOffsets.back();
  std::vector<at::Tensor> inputs{testing::random_tensor({tokens, kStepsHeads, kStepsWidth}, 1, dtype),
                                 testing::random_tensor({tokens, kStepsKeyHeads, kStepsWidth}, 2, dtype),
                                 testing::random_tensor({tokens, kStepsKeyHeads, kStepsWidth}, 3, dtype)};
  inputs[0][3][2][1] = 0.7;  // a value at the bound passes its gradient on
  if (one.q_norm > 0) inputs.push_back(testing::random_tensor({one.q_norm}, 4, dtype));
  if (one.k_norm > 0) inputs.push_back(testing::random_tensor({one.k_norm}, 5, dtype));
  return inputs;
}

AttentionSteps steps_of(const StepsCase& one, const std::vector<at::Tensor>& inputs) {
  AttentionSteps steps{.v = {.clip = one.clip}};
  steps.q.clip = steps.k.clip = one.clip;
  steps.q.norm_eps = steps.k.norm_eps = 1e-5;
  if (one.rotated)
    steps.q.rotary = steps.k.rotary = rotary_table(at::arange(kStepsOffsets.back()), kStepsWidth, {.theta = 100.0});
  if (one.q_norm > 0) steps.q.norm = inputs[3];
  if (one.k_norm > 0) steps.k.norm = inputs.back();
  return steps;
}

at::Tensor in_nodes_of_their_own(const at::Tensor& x_THP, const HeadSteps& steps) {
  auto x = x_THP;
  if (steps.norm.defined()) x = rms_norm(x.view({-1, steps.norm.size(0)}), steps.norm, 1e-5).view(x.sizes());
  if (steps.clip) x = at::clamp(x, -*steps.clip, *steps.clip);
  return steps.rotary.cos.defined() ? apply_rotary(x, steps.rotary) : x;
}

at::Tensor with_steps(const StepsCase& one, const std::vector<at::Tensor>& in) {
  return packed_attention(in[0], in[1], in[2], kStepsOffsets, steps_of(one, in));
}

TEST(AttentionSteps, HaveTheBitsOfSeparateAutogradNodes) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const auto& one : kStepsCases) {
      auto inputs = inputs_of(one, dtype);
      for (auto& input : inputs) input.requires_grad_(true);
      const auto steps = steps_of(one, inputs);
      const auto ours = with_steps(one, inputs);
      const auto separate =
          packed_attention(in_nodes_of_their_own(inputs[0], steps.q), in_nodes_of_their_own(inputs[1], steps.k),
                           in_nodes_of_their_own(inputs[2], steps.v), kStepsOffsets);
      EXPECT_TRUE(at::equal(ours, separate)) << one.name;
      const auto flow = testing::random_tensor(ours.sizes(), 6, dtype);
      const auto grads = torch::autograd::grad({ours}, inputs, {flow});
      const auto expected = torch::autograd::grad({separate}, inputs, {flow});
      for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(at::equal(grads[i], expected[i])) << one.name << ", " << i;
    }
}

TEST(AttentionSteps, GradientsMatchCentralDifferences) {
  const std::vector<int64_t> offsets{0, 3, 4, 9};
  const auto table = rotary_table(at::arange(9), 6, {.theta = 100.0});
  for (const bool per_head : {false, true})
    testing::expect_gradients_match(
        [&](const auto& in) {
          const AttentionSteps steps{.q = {.norm = in[3], .norm_eps = 1e-5, .clip = 0.9, .rotary = table},
                                     .k = {.norm = in[4], .norm_eps = 1e-5, .clip = 0.9, .rotary = table},
                                     .v = {.clip = 0.9}};
          return packed_attention(in[0], in[1], in[2], offsets, steps);
        },
        {testing::random_tensor({9, 4, 6}, 1), testing::random_tensor({9, 2, 6}, 2),
         testing::random_tensor({9, 2, 6}, 3), testing::random_tensor({per_head ? 6 : 24}, 4),
         testing::random_tensor({per_head ? 6 : 12}, 5)});
}

TEST(AttentionSteps, OnlyRequestedGradientsAreComputed) {
  const auto& one = kStepsCases[4];
  const auto all = inputs_of(one, at::kFloat);
  const auto grads_with = [&](const std::vector<size_t>& selected) {
    std::vector<at::Tensor> inputs, leaves;
    for (const auto& x : all) inputs.push_back(x.detach().clone());
    for (const size_t i : selected) leaves.push_back(inputs[i].requires_grad_(true));
    with_steps(one, inputs).sum().backward();
    for (auto& input : inputs) input = input.grad();
    return inputs;
  };
  const auto expected = grads_with({0, 1, 2, 3, 4});
  for (const auto& selected : std::vector<std::vector<size_t>>{{0}, {1}, {2}, {3}, {0, 2}, {1, 3}, {2, 4}}) {
    const auto found = grads_with(selected);
    for (size_t i = 0; i < found.size(); ++i) {
      const bool is_selected = std::find(selected.begin(), selected.end(), i) != selected.end();
      EXPECT_EQ(found[i].defined(), is_selected) << i;
      EXPECT_TRUE(!is_selected || at::equal(found[i], expected[i])) << i;
    }
  }
}

TEST(AttentionSteps, RejectANormOfAnotherWidth) {
  const auto x = testing::random_tensor({3, 4, 6}, 1);
  EXPECT_THROW(apply_steps(x, {.norm = testing::random_tensor({12}, 2)}), Error);
  EXPECT_THROW(packed_attention(x, x, x, std::vector<int64_t>{0, 3}, {.k = {.norm = testing::random_tensor({12}, 2)}}),
               Error);
}

TEST(Rotary, RotatesPairsByPositionTimesFrequency) {
  const auto positions = at::tensor({0, 1, 7}, at::kLong);
  const auto table = rotary_table(positions, 4, {.theta = 100.0});
  const auto x = testing::random_tensor({3, 2, 4}, 1);
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
  const auto table = rotary_table(at::tensor({3, 0, 5}, at::kLong), 6, {.theta = 10000.0});
  testing::expect_gradients_match([&](const auto& in) { return apply_rotary(in[0], table); },
                                  {testing::random_tensor({3, 2, 6}, 1)});
}

}  // namespace
}  // namespace evenkeel::nn
