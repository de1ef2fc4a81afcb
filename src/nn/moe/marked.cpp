#include "nn/moe/marked.h"

#include <ATen/ATen.h>

#include "nn/dense/index.h"

namespace evenkeel::nn {

at::Tensor marked(const at::Tensor& experts, int64_t count, bool value) {
  auto sizes = experts.sizes().vec();
  sizes.back() = count;
  // A token's experts differ: no place is written twice.
  return write_once(at::full(sizes, !value, experts.options().dtype(at::kBool)), -1, experts, value);
}

}  // namespace evenkeel::nn
