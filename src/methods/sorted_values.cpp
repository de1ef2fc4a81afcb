#include "methods/sorted_values.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/error.h"
#include "base/system/parallel.h"

namespace evenkeel::methods {
namespace {

constexpr int64_t kSortedBlock = 4096;  // values of each client that one thread holds

void check_parts_alike(const Parts& parts) {
  EK_CHECK(!parts.values.empty() && parts.values.size() == parts.weights.size(), kInternal,
           "aggregate: ", parts.values.size(), " values and ", parts.weights.size(), " weights");
  for (size_t i = 0; i < parts.values.size(); ++i)
    EK_CHECK(parts.values[i].sizes() == parts.values.front().sizes() && parts.values[i].is_floating_point(), kShape,
             parts.who(i), " is ", parts.values[i].sizes(), " of ", c10::toString(parts.values[i].scalar_type()),
             ", others are ", parts.values.front().sizes());
}

/// Returns values [begin, begin + count) of all clients, [C, count] float64.
at::Tensor block_of(const Parts& parts, int64_t begin, int64_t count) {
  const auto block_CN = at::empty({static_cast<int64_t>(parts.values.size()), count}, at::kDouble);
  for (size_t i = 0; i < parts.values.size(); ++i) {
    auto row_N = block_CN[static_cast<int64_t>(i)];
    row_N.copy_(parts.values[i].reshape({-1}).narrow(0, begin, count));
    EK_CHECK(at::isfinite(row_N).all().item<bool>(), kNumeric, parts.who(i), " holds a value that is not finite");
  }
  return block_CN;
}

}  // namespace

at::Tensor by_sorted_values(const Parts& parts, const std::function<double(std::span<const WeightedValue>)>& combine) {
  check_parts_alike(parts);
  const auto& first = parts.values.front();
  const auto result = at::empty(first.sizes(), at::kDouble);
  auto* out = result.mutable_data_ptr<double>();
  for_each_range(first.numel(), kSortedBlock, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    const auto block_CN = block_of(parts, begin, count);
    const auto* values = block_CN.const_data_ptr<double>();
    std::vector<WeightedValue> column(parts.values.size());
    for (int64_t n = 0; n < count; ++n) {
      for (size_t c = 0; c < column.size(); ++c)
        column[c] = {values[static_cast<int64_t>(c) * count + n], parts.weights[c]};
      std::sort(column.begin(), column.end());
      out[begin + n] = combine(column);
    }
  });
  return first.scalar_type() == at::kDouble ? result : result.to(at::kFloat);
}

}  // namespace evenkeel::methods
