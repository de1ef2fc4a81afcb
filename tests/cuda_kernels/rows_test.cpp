// Compares the kernels of rows with float64.
#include "both_orders.h"

namespace evenkeel::nn::cuda {
namespace {

using testing::apart_by_norm;

void expect_gather(const Variant& variant, int64_t width) {
  const auto x = random_values({5, width}, 1, variant.type), index = at::tensor({4, 1, 4, 0, 3, 3, 2}, at::kLong);
  for (const int64_t count : {0, 1, 7}) {
    const auto y = unwritten({count, width}, variant.type);
    run_both_ways(variant.of("gather_rows"),
                  GatherRows{x.data_ptr(), address<long long>(index), y.data_ptr(), static_cast<int>(width)}, count,
                  {y});
    EXPECT_TRUE(at::equal(y, x.index_select(0, index.narrow(0, 0, count))));
  }
}

void expect_sum(const Variant& variant, int64_t width, bool weighted, bool two) {
  const auto x = random_values({6, width}, 1, variant.type),
             second = two ? random_values({6, width}, 2, variant.type) : at::Tensor(),
             weights = weighted ? random_values({7}, 3, variant.type) : at::Tensor();
  const auto order = at::tensor({4, 1, 5, 0, 3, 3, 2}, at::kLong), begins = at::tensor({0, 3, 3, 4}, at::kLong);
  const auto y = unwritten({4, width}, variant.type);
  run_both_ways(variant.of("sum_rows"),
                SumRows{x.data_ptr(), address<void>(second), address<long long>(order), address<long long>(begins),
                        address<void>(weights), y.data_ptr(), 7, 4, static_cast<int>(width)},
                4, {y});
  auto terms = x.to(at::kDouble);
  if (two) terms = terms + second.to(at::kDouble);
  terms = terms.index_select(0, order);
  if (weighted) terms = terms * weights.to(at::kDouble).unsqueeze(1);
  const auto expected =
      at::stack({terms.slice(0, 0, 3).sum(0), at::zeros({width}, at::kDouble), terms[3], terms.slice(0, 4, 7).sum(0)});
  EXPECT_LT(apart_by_norm(y, expected), variant.tolerance());
  EXPECT_EQ(y[1].abs().sum().item<double>(), 0);  // a row of no term
}

TEST(RowsKernel, GathersAnyRowsAnyNumberOfTimes) {
  for (const auto& variant : kVariants)
    for (const int64_t width : variant.wide ? std::vector<int64_t>{8, 648} : std::vector<int64_t>{1, 7, 131})
      expect_gather(variant, width);
}

TEST(RowsKernel, SumsWeightedRowsInTheirOrder) {
  for (const auto& variant : kVariants)
    for (const int64_t width : variant.wide ? std::vector<int64_t>{8, 648} : std::vector<int64_t>{1, 7, 131})
      for (const bool weighted : {false, true})
        for (const bool two : {false, true}) expect_sum(variant, width, weighted, two);
}

TEST(RowsKernel, KeepsWhatIsNotFinite) {
  const auto x =
      at::tensor({1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}, at::kDouble)
          .to(at::kBFloat16);
  const auto order = at::tensor({0, 1, 0, 2}, at::kLong), begins = at::tensor({0, 1, 2}, at::kLong);
  const auto y = at::zeros({3, 1}, at::kBFloat16);
  run_both_ways("sum_rows_bf16",
                SumRows{x.data_ptr(), nullptr, address<long long>(order), address<long long>(begins), nullptr,
                        y.data_ptr(), 4, 3, 1},
                3, {y});
  EXPECT_EQ(y[0].item<float>(), 1);
  EXPECT_TRUE(std::isnan(y[1].item<float>()));
  EXPECT_TRUE(std::isinf(y[2].item<float>()));
}

}  // namespace
}  // namespace evenkeel::nn::cuda
