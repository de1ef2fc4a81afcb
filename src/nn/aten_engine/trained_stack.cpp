#include "nn/aten_engine/trained_stack.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace evenkeel::nn::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The inputs are the stack, then all matrices of the first part, and so on.
struct StackNode : torch::autograd::Function<StackNode> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList inputs, const std::vector<int64_t>& first_rows) {
    ctx->saved_data["first_rows"] = first_rows;
    std::vector<int64_t> rows;
    const size_t experts = (inputs.size() - 1) / first_rows.size();
    for (size_t part = 0; part < first_rows.size(); ++part) rows.push_back(inputs[1 + part * experts].size(0));
    ctx->saved_data["rows"] = rows;
    return inputs[0];
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto first_rows = ctx->saved_data["first_rows"].toIntVector(), rows = ctx->saved_data["rows"].toIntVector();
    const auto experts_EXI = grads[0].unbind();
    variable_list out(1);
    for (size_t part = 0; part < rows.size(); ++part)
      for (const auto& of_expert : experts_EXI) out.push_back(of_expert.narrow(0, first_rows[part], rows[part]));
    out.emplace_back();  // the argument after the tensors
    return out;
  }
};

bool is_trained(const StackRows& part) {
  return std::any_of(part.matrices.begin(), part.matrices.end(),
                     [](const FrozenWeight& matrix) { return matrix.values_OI.requires_grad(); });
}

}  // namespace

at::Tensor trained_stack(const at::Tensor& stack_ERI, const std::vector<StackRows>& parts) {
  if (!c10::GradMode::is_enabled() || std::none_of(parts.begin(), parts.end(), is_trained)) return stack_ERI;
  variable_list inputs{stack_ERI};
  std::vector<int64_t> first_rows;
  for (const auto& part : parts) {
    for (const auto& matrix : part.matrices) inputs.push_back(matrix.values_OI);
    first_rows.push_back(part.first_row);
  }
  return StackNode::apply(at::TensorList(inputs), first_rows);
}

}  // namespace evenkeel::nn::aten
