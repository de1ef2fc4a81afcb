#include "nn/attention/full_attention.h"

#include <cmath>

#include "base/plain/error.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::max_difference;
using testing::random_tensor;

// Computes full attention of one sequence, head by head. [L, H, P] -> [L, H * P]
at::Tensor plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  std::vector<at::Tensor> heads;
  for (int64_t h = 0; h < q.size(1); ++h) {
    const auto scores = at::mm(q.select(1, h), k.select(1, h).t()) / std::sqrt(static_cast<double>(q.size(2)));
    heads.push_back(at::mm(at::softmax(scores, 1), v.select(1, h)));
  }
  return at::cat(heads, 1);
}

TEST(FullAttention, EqualsSoftmaxOverTheWholeSequence) {
  const std::vector<int64_t> offsets{0, 1, 8, 13};
  const auto q = testing::random_tensor({13, 3, 6}, 1), k = testing::random_tensor({13, 3, 6}, 2),
             v = testing::random_tensor({13, 3, 6}, 3);
  const auto out = full_attention(q, k, v, offsets);
  ASSERT_EQ(out.sizes(), at::IntArrayRef({13, 18}));
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    const auto rows = [&](const at::Tensor& x) { return x.slice(0, offsets[b], offsets[b + 1]); };
    EXPECT_LT(testing::max_difference(rows(out), plain(rows(q), rows(k), rows(v))), 1e-12) << "sequence " << b;
  }
}

constexpr int64_t kAll = 1000;  // sequences in one call

std::vector<int64_t> offsets_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets{0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

TEST(FullAttention, SequencesInOneCallGiveTheirOwnValues) {
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{4, 4, 4, 4}, {7}, {1, 1, 33, 33, 1}, {40, 200, 200, 40}, {1, 2, 3}}) {
    const auto offsets = offsets_of(lengths);
    const auto part = [&](uint64_t seed) { return testing::random_tensor({offsets.back(), 3, 10}, seed); };
    const auto q = part(1), k = part(2), v = part(3), together = full_attention(q, k, v, offsets, kAll);
    for (size_t b = 0; b < lengths.size(); ++b) {
      const auto own = [&](const at::Tensor& x) { return x.narrow(0, offsets[b], lengths[b]); };
      EXPECT_LT(testing::max_difference(own(together), plain(own(q), own(k), own(v))), 1e-12) << b;
    }
    EXPECT_LT(testing::max_difference(together, full_attention(q, k, v, offsets)), 1e-13);
  }
}

TEST(FullAttention, TheTestDeviceGivesTheValuesOfTheCpu) {
  const auto offsets = offsets_of({3, 3, 5, 1, 1, 64, 64});
  for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-11), {at::kFloat, 1e-5}}) {
    const auto part = [&](uint64_t seed) { return testing::random_tensor({offsets.back(), 4, 16}, seed); };
    const auto there = [&, type = type](const at::Tensor& x) { return x.to(testing::test_device(), type); };
    const auto q = part(1), k = part(2), v = part(3);
    EXPECT_LT(testing::apart_by_norm(full_attention(there(q), there(k), there(v), offsets, kAll),
                                     full_attention(q, k, v, offsets)),
              tolerance);
  }
}

TEST(FullAttention, PermutingASequencePermutesTheOutput) {
  const auto q = testing::random_tensor({7, 2, 5}, 1), k = testing::random_tensor({7, 2, 5}, 2),
             v = testing::random_tensor({7, 2, 5}, 3);
  const std::vector<int64_t> offsets{0, 7};
  const auto order = at::tensor({3, 0, 6, 1, 5, 2, 4}, at::kLong);
  const auto moved = [&](const at::Tensor& x) { return x.index_select(0, order); };
  EXPECT_LT(testing::max_difference(full_attention(moved(q), moved(k), moved(v), offsets),
                                    moved(full_attention(q, k, v, offsets))),
            1e-12);
}

TEST(FullAttention, RejectsInconsistentShapes) {
  const auto x = testing::random_tensor({5, 2, 3}, 1);
  const std::vector<int64_t> whole{0, 5}, too_short{0, 4}, with_empty{0, 2, 2, 5};
  EXPECT_THROW(full_attention(x, x, testing::random_tensor({5, 2, 4}, 2), whole), Error);
  EXPECT_THROW(full_attention(x, x, x, too_short), Error);
  EXPECT_THROW(full_attention(x, x, x, with_empty), Error);
}

}  // namespace
}  // namespace evenkeel::nn
