#include "nn/aten_engine/recorded_stack.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/plain/error.h"
#include "nn/aten_engine/copied_values.h"
#include "nn/aten_engine/pass.h"

namespace evenkeel::nn::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What a node of autograd keeps.
struct Held : torch::CustomClassHolder {
  explicit Held(std::shared_ptr<RecordedStack> of) : stack(std::move(of)) {}
  std::shared_ptr<RecordedStack> stack;
};

struct StackNode : torch::autograd::Function<StackNode> {
  /// \param anchor  a leaf without values, so that autograd calls backward()
  static variable_list forward(AutogradContext* ctx, const at::Tensor& anchor,
                               const std::shared_ptr<RecordedStack>& stack, const Layout& layout) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    (void)anchor;
    ctx->saved_data["stack"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(stack));
    ctx->set_materialize_grads(false);
    return stack->forward(layout);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto held = c10::static_intrusive_pointer_cast<Held>(ctx->saved_data["stack"].toCapsule());
    held->stack->backward(grads);
    return variable_list(3);
  }
};

}  // namespace

RecordedStack::RecordedStack(const GraphedPass& pass, const Layout& layout,
                             const std::shared_ptr<SharedGraphPool>& pool)
    : layout_(layout.copy()) {
  const auto device = pass.input.device;
  forward_.emplace(device, pool, [&] { record_forward(pass); });
  EK_CHECK(outputs_.front().requires_grad(), kInternal, "a pass without anything to train is recorded");
  for (const auto& output : outputs_) grads_.push_back(at::zeros_like(output, at::MemoryFormat::Contiguous));
  given_.resize(grads_.size(), false);
  backward_.emplace(device, pool, [&] { record_backward(); });
  for (auto& output : outputs_) output = output.detach().zero_();
  if (choices_LRK_.defined()) choices_LRK_.zero_();  // so that results are those of a replay
}

void RecordedStack::record_forward(const GraphedPass& pass) {
  const auto& in = pass.input;
  data::PackedBatch whole = in.batch;  // one micro-batch: where they end differs from batch to batch
  whole.ends.clear();
  std::vector<RoutingByLayer> routing(1);
  AtenPass within({.batch = whole,
                   .compute = in.compute,
                   .device = in.device,
                   .experts = in.experts,
                   .top_k = in.top_k,
                   .factors = pass.factors(),
                   .routing = routing,
                   .records_logits = in.records_logits},
                  layout_);
  outputs_.push_back(pass.layers(within));
  layers_ = within.choices().layers;
  if (!layers_.empty()) choices_LRK_ = at::stack(within.choices().experts_RK);
  for (const auto& [layer, stats] : routing.front()) {
    if (!stats.router_logits.defined()) continue;
    logit_layers_.push_back(layer);
    outputs_.push_back(stats.router_logits);
  }
}

void RecordedStack::record_backward() { torch::autograd::backward(outputs_, grads_); }

std::vector<at::Tensor> RecordedStack::forward(const Layout& layout) {
  copy_values(layout_.tensors(), layout.tensors());
  forward_->replay();
  std::vector<at::Tensor> results;
  for (const auto& output : outputs_) results.push_back(output.detach());
  return results;
}

void RecordedStack::backward(const std::vector<at::Tensor>& grads) {
  std::vector<at::Tensor> to, from;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].defined()) to.push_back(grads_[i]), from.push_back(grads[i]);
    if (!grads[i].defined() && given_[i]) grads_[i].zero_();
    given_[i] = grads[i].defined();
  }
  copy_values(to, from);
  backward_->replay();
}

std::vector<at::Tensor> run(const std::shared_ptr<RecordedStack>& stack, const Layout& layout) {
  const auto anchor = at::empty({0}, layout.ids_R.options().dtype(at::kFloat)).requires_grad_(true);
  return StackNode::apply(anchor, stack, layout);
}

}  // namespace evenkeel::nn::aten
