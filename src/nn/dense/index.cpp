#include "nn/dense/index.h"

#include <ATen/ATen.h>

#include "base/plain/error.h"

namespace evenkeel::nn {
namespace {

/// Switches deterministic algorithms off while it lives.
class AnyAlgorithm {
 public:
  AnyAlgorithm()
      : deterministic_(at::globalContext().deterministicAlgorithms()),
        warns_(at::globalContext().deterministicAlgorithmsWarnOnly()) {
    if (deterministic_) at::globalContext().setDeterministicAlgorithms(false, false);
  }
  ~AnyAlgorithm() {
    if (deterministic_) at::globalContext().setDeterministicAlgorithms(true, warns_);
  }
  AnyAlgorithm(const AnyAlgorithm&) = delete;
  AnyAlgorithm& operator=(const AnyAlgorithm&) = delete;

 private:
  bool deterministic_, warns_;
};

}  // namespace

std::span<const int64_t> numbers(const at::Tensor& index) {
  EK_CHECK(index.is_cpu() && index.scalar_type() == at::kLong && index.is_contiguous(), kInternal, "an index on ",
           index.device().str(), " is read on the processor");
  return {index.const_data_ptr<int64_t>(), static_cast<size_t>(index.numel())};
}

at::Tensor write_once(at::Tensor to, int64_t dim, const at::Tensor& index, const at::Tensor& values) {
  const AnyAlgorithm any_algorithm;
  return to.scatter_(dim, index, values);
}

at::Tensor write_once(at::Tensor to, int64_t dim, const at::Tensor& index, const at::Scalar& value) {
  const AnyAlgorithm any_algorithm;
  return to.scatter_(dim, index, value);
}

void copy_rows_once(at::Tensor to, int64_t dim, const at::Tensor& index_N, const at::Tensor& from) {
  const AnyAlgorithm any_algorithm;
  to.index_copy_(dim, index_N, from);
}

}  // namespace evenkeel::nn
