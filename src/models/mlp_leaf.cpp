#include "models/mlp_leaf.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/error.h"

namespace evenkeel::models {
namespace {

/// Returns the place of a dense linear for PEFT. PEFT 0.21 takes the names of dense linears for those of experts where
/// it converts adapters of a family. As parameters it adapts them.
lora::FusedPlace parameter_place(const std::string& module, const ModelBuilder& model) {
  if (model.spec.peft != lora::PeftFamily::kConverted) return {};
  const auto number = concat(".", model.layer, ".");
  return {.module = module, .parameter = concat(module.substr(module.find(number) + number.size()), ".weight")};
}

}  // namespace

MlpLeaf::MlpLeaf(const MlpSpec& spec, const std::string& module, ModelBuilder& model) : activation_(spec.activation) {
  const int64_t hidden = model.spec.hidden_size;
  const auto place = [&](std::string_view name) { return model.gguf_place(concat(name, spec.gguf_suffix)); };
  const auto project = [&](std::string_view site, const std::string& name, int64_t in, int64_t out,
                           lora::GgufPlace gguf) {
    return FrozenLinear({.site = concat(module, ".", site),
                         .module = concat(module, ".", name),
                         .in = in,
                         .out = out,
                         .role = lora::SiteRole::kMlp,
                         .bias = spec.bias,
                         .fused = parameter_place(concat(module, ".", name), model),
                         .gguf = std::move(gguf)},
                        model);
  };
  const auto& joined = spec.names.gate_up;
  if (!joined.empty()) {
    gate_up_ = project(joined, joined, hidden, 2 * spec.width, place("ffn_up"));
  } else {
    gate_ = project("gate_proj", spec.names.gate, hidden, spec.width, place("ffn_gate"));
    up_ = project("up_proj", spec.names.up, hidden, spec.width, place("ffn_up"));
  }
  down_ = project("down_proj", spec.names.down, spec.width, hidden, place("ffn_down"));
  auto& work = model.spec.work;
  work.kept += static_cast<double>(2 * hidden + 4 * spec.width);
  work.widest = std::max(work.widest, static_cast<double>(spec.width));
}

at::Tensor MlpLeaf::operator()(const at::Tensor& x_RD, const LayerPass& pass) const {
  const auto hidden =
      gate_up_ ? (*gate_up_)(x_RD, pass).chunk(2, 1) : FrozenLinear::together({&gate_, &up_}, x_RD, pass);
  return down_(activate(activation_, hidden[0]) * hidden[1], pass);
}

}  // namespace evenkeel::models
