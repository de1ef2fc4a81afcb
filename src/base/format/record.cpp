#include "base/format/record.h"

#include <ATen/ATen.h>

namespace evenkeel::record {

std::vector<int64_t> numbers_of(const at::Tensor& tensor_N) {
  const auto plain_N = tensor_N.contiguous();
  const int64_t* data = plain_N.const_data_ptr<int64_t>();
  return {data, data + plain_N.numel()};
}

at::Tensor tensor_of(const std::vector<int64_t>& numbers) { return at::tensor(numbers, at::kLong); }

}  // namespace evenkeel::record
