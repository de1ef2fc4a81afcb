#include "nn/aten_engine/layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/dense/index.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

/// The table must have the bits of the CPU's on every device, at any positions.
TEST(AtenLayout, HasTheRotaryTableOfTheCpu) {
  for (const int64_t width : {2, 6, 64, 128})
    for (const auto& rope : {RopeSpec{.theta = 100.0}, RopeSpec{.scaling = LinearRope{2.5}, .attention_factor = 0.75}})
      for (const std::vector<int64_t>& positions :
           {std::vector<int64_t>{0}, {0, 1, 2, 3, 4, 0, 1, 0, 1, 2}, {700, 3, 41, 3, 4095, 700, 0}}) {
        data::PackedBatch batch;
        batch.positions = at::tensor(positions, at::kLong);
        batch.ids = at::zeros_like(batch.positions);
        batch.offsets = {0, static_cast<int64_t>(positions.size())};
        const std::vector<RopeSpec> ropes{rope, {.theta = 7.0}};
        const auto layout = aten::Layout::of(batch, width, ropes, testing::test_device());
        ASSERT_EQ(layout.rotary.size(), ropes.size());
        for (size_t i = 0; i < ropes.size(); ++i) {
          const auto expected = rotary_table(batch.positions, width, ropes[i]);
          EXPECT_TRUE(at::equal(layout.rotary[i].cos.cpu(), expected.cos)) << width << ' ' << positions.size();
          EXPECT_TRUE(at::equal(layout.rotary[i].sin.cpu(), expected.sin)) << width << ' ' << positions.size();
          const auto halves = expected.sin.chunk(2, 1);
          EXPECT_TRUE(at::equal(layout.signed_sin[i].cpu(), at::cat({-halves[0], halves[1]}, 1))) << width;
        }
      }
}

TEST(AtenRows, WriteOncePutsEachValueInItsPlaceAndLeavesTheSwitchAsItWas) {
  const auto device = testing::test_device();
  const bool before = at::globalContext().deterministicAlgorithms();
  for (const bool deterministic : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(deterministic, false);
    const auto index = at::tensor({2, 0, 1, 2, 1, 0}, at::kLong).view({2, 3}).to(device);
    const auto written =
        nn::write_once(at::zeros({2, 4}).to(device), 1, index, at::arange(1.f, 7.f).view({2, 3}).to(device));
    EXPECT_TRUE(at::equal(written.cpu(), at::tensor({2.f, 3.f, 1.f, 0.f, 6.f, 5.f, 4.f, 0.f}).view({2, 4})));
    EXPECT_EQ(at::globalContext().deterministicAlgorithms(), deterministic);
  }
  at::globalContext().setDeterministicAlgorithms(before, false);
}

TEST(AtenRows, WriteOncePutsOneValueAndCopiesRows) {
  const auto device = testing::test_device();
  const bool before = at::globalContext().deterministicAlgorithms();
  for (const bool deterministic : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(deterministic, false);
    const auto index = at::tensor({2, 0}, at::kLong).view({2, 1}).to(device);
    const auto marks = nn::write_once(at::ones({2, 3}).to(device), 1, index, 7);
    EXPECT_TRUE(at::equal(marks.cpu(), at::tensor({1.f, 1.f, 7.f, 7.f, 1.f, 1.f}).view({2, 3})));
    auto rows = at::zeros({2, 4}).to(device);
    nn::copy_rows_once(rows, 1, at::tensor({3, 1}, at::kLong).to(device), at::arange(1.f, 5.f).view({2, 2}).to(device));
    EXPECT_TRUE(at::equal(rows.cpu(), at::tensor({0.f, 2.f, 0.f, 1.f, 0.f, 4.f, 0.f, 3.f}).view({2, 4})));
    EXPECT_EQ(at::globalContext().deterministicAlgorithms(), deterministic);
  }
  at::globalContext().setDeterministicAlgorithms(before, false);
}

TEST(AtenRows, AnUploadCarriesIndicesAndFloats) {
  aten::IndexUpload upload;
  const std::vector<int64_t> indices{5, -1, 1L << 40};
  const std::vector<float> floats{0.25f, -3.f, 1e-30f};
  const std::vector<int32_t> ints{7, -2, 1 << 30, 4, 0};
  const size_t first = upload.add(indices), second = upload.add(floats), third = upload.add(indices),
               fourth = upload.add(ints);
  upload.send(testing::test_device());
  const auto expected = at::tensor(indices, at::kLong);
  EXPECT_TRUE(at::equal(upload.sent(first).cpu(), expected));
  EXPECT_TRUE(at::equal(upload.sent(third).cpu(), expected));
  EXPECT_TRUE(at::equal(upload.sent_floats(second).cpu(), at::tensor({0.25f, -3.f, 1e-30f})));
  EXPECT_TRUE(at::equal(upload.sent_ints(fourth).cpu(), at::tensor(ints, at::kInt)));
}

}  // namespace
}  // namespace evenkeel::nn
