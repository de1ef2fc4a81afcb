#include "nn/dense/stacked.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "nn/dense/gradients.h"

namespace evenkeel::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct StackNode : torch::autograd::Function<StackNode> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList leaves, int64_t axis, int64_t begin, int64_t length) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // the operators of a node need no graph
    std::vector<at::Tensor> slices;
    for (const auto& leaf : leaves) slices.push_back(leaf.narrow(axis, begin, length));
    ctx->save_for_backward(leaves.vec());
    ctx->saved_data["axis"] = axis;
    ctx->saved_data["begin"] = begin;
    return at::stack(slices);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto leaves = ctx->get_saved_variables();
    auto gradients =
        accumulate_slices(leaves, ctx->saved_data["axis"].toInt(), ctx->saved_data["begin"].toInt(), grads[0]);
    gradients.resize(leaves.size() + 3);
    return gradients;
  }
};

}  // namespace

at::Tensor stacked_slices(at::TensorList leaves, int64_t axis, int64_t begin, int64_t length) {
  return StackNode::apply(leaves, axis, begin, length);
}

at::Tensor stacked(at::TensorList leaves) { return stacked_slices(leaves, 0, 0, leaves.front().size(0)); }

}  // namespace evenkeel::nn
