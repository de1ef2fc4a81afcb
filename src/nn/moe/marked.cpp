#include "nn/moe/marked.h"

#include <ATen/ATen.h>

namespace evenkeel::nn {

at::Tensor marked(const at::Tensor& experts, int64_t count, bool value) {
  auto sizes = experts.sizes().vec();
  sizes.back() = count;
  return at::full(sizes, !value, experts.options().dtype(at::kBool)).scatter_(-1, experts, value);
}

}  // namespace evenkeel::nn
