#include "base/system/factorizations.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace evenkeel {
namespace {

/// Returns the largest error of Q R over matrices that are factorised on two threads.
double worst_error(int64_t rows, int64_t columns) {
  constexpr int64_t kMatrices = 6;
  const auto given = at::arange(kMatrices * rows * columns, at::kDouble).sin().view({kMatrices, rows, columns});
  const auto errors = at::zeros({kMatrices}, at::kDouble);
  for_each_factorization(kMatrices, [&](int64_t i) {
    const auto [q, r] = at::linalg_qr(given[i]);
    errors[i].copy_((q.mm(r) - given[i]).abs().max());
  });
  return errors.max().item<double>();
}

class Factorizations : public ::testing::Test {
 protected:
  ~Factorizations() override { at::set_num_threads(before_); }

 private:
  const int before_ = at::get_num_threads();
};

/// Without OneMklThread, matrices of 192 x 40 wait for ever.
TEST_F(Factorizations, OnTwoThreadsEndAtEveryShape) {
  at::set_num_threads(2);
  for (const int64_t rows : {192, 576, 1536})
    for (const int64_t columns : {8, 24, 40, 64, 100, 180})
      EXPECT_LT(worst_error(rows, columns), 1e-10) << rows << " x " << columns;
}

}  // namespace
}  // namespace evenkeel
