#include "models/mixture_leaf.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/error.h"

namespace evenkeel::models {
namespace {

double product(int64_t x, int64_t y) { return static_cast<double>(x) * static_cast<double>(y); }

int64_t read_experts(const ModelConfig& config, const MixtureKeys& keys) {
  if (!config.has(keys.experts_too)) return config.integer(keys.experts);
  const int64_t experts = config.integer(keys.experts_too);
  EK_CHECK(!config.has(keys.experts) || config.integer(keys.experts) == experts, kCheckpoint, config.origin(), ": ",
           keys.experts, " is ", config.integer(keys.experts), " and ", keys.experts_too, " ", experts,
           ", two spellings of one number");
  return experts;
}

}  // namespace

MixtureSpec read_mixture(const ModelConfig& config, const MixtureKeys& keys) {
  config.require("hidden_act", "silu");
  MixtureSpec spec{
      .experts = read_experts(config, keys), .top_k = config.integer(keys.top_k), .width = config.integer(keys.width)};
  EK_CHECK(spec.top_k <= spec.experts, kCheckpoint, config.origin(), ": ", keys.top_k, " ", spec.top_k,
           " is more than ", keys.experts, " ", spec.experts);
  return spec;
}

MixtureLeaf::MixtureLeaf(const MixtureSpec& spec, const std::string& module, ModelBuilder& model)
    : spec_(spec),
      module_(module),
      gate_site_(module + ".experts.gate_proj"),
      up_site_(module + ".experts.up_proj"),
      down_site_(module + ".experts.down_proj") {
  EK_CHECK(spec.activation == Activation::kSilu, kConfig, "family ", model.spec.family, ": experts with activation ",
           config::name_of(spec.activation), ", supported: silu");
  take_router(model);
  const auto& names = spec_.names;
  const std::string gate_up = names.fused + ".experts.gate_up_proj", down = names.fused + ".experts.down_proj";
  const auto stored = [&](const std::string& name) { return name.empty() ? name : concat(module_, ".", name); };
  lora::FusedPlace place{.parameter = gate_up, .parts = 2, .stored = stored(names.stored_gate_up)};
  experts_.gate = take_stack(gate_site_, names.expert.gate, place, "ffn_gate_exps", model);
  place.part = 1;
  experts_.up = take_stack(up_site_, names.expert.up, place, "ffn_up_exps", model);
  experts_.down =
      take_stack(down_site_, names.expert.down, {.parameter = down, .order = 1, .stored = stored(names.stored_down)},
                 "ffn_down_exps", model);
  auto& work = model.spec.work;
  work.kept += static_cast<double>(2 * model.spec.hidden_size + 4 * spec.experts);
  work.kept_by_expert += static_cast<double>(2 * spec.width);
  work.widest = std::max(work.widest, static_cast<double>(spec.width));
  if (spec.shared) take_shared(*spec.shared, model);
}

/// Returns the block's name in the fused layout, as in "model.layers.3.mlp".
std::string MixtureLeaf::fused_block() const { return module_.substr(0, module_.rfind('.') + 1) + spec_.names.fused; }

void MixtureLeaf::take_router(ModelBuilder& model) {
  const auto name = concat(module_, ".", spec_.names.router);
  const auto& fused = spec_.names.fused_router;
  auto gguf = model.gguf_place("ffn_gate_inp");
  router_ = FrozenLinear({.site = module_ + ".gate",
                          .module = name,
                          .in = model.spec.hidden_size,
                          .out = spec_.experts,
                          .role = lora::SiteRole::kRouter,
                          .fused = {.module = concat(fused_block(), ".", fused),
                                    .parameter = concat(spec_.names.fused, ".", fused, ".weight")},
                          .gguf = std::move(gguf)},
                         model);
  spec_.router.score = spec_.gate.score;
  spec_.router.renormalise = spec_.gate.renormalise;
  if (!spec_.correction_bias) return;
  spec_.router.bias_E = model.take_float32(concat(module_, ".", spec_.names.correction_bias), {spec_.experts});
}

void MixtureLeaf::take_shared(const SharedExpert& shared, ModelBuilder& model) {
  const auto& names = spec_.names;
  shared_.emplace(MlpSpec{.width = shared.width, .names = names.expert, .gguf_suffix = "_shexp"},
                  concat(module_, ".", names.shared), model);
  if (!shared.gated) return;
  shared_gate_.emplace(
      LinearSpec{.site = {}, .module = concat(module_, ".", names.shared_gate), .in = model.spec.hidden_size, .out = 1},
      model);
}

/// Takes one projection of all experts, each a tensor of the checkpoint, and adds the site.
std::vector<nn::FrozenWeight> MixtureLeaf::take_stack(const std::string& site_name, const std::string& name,
                                                      lora::FusedPlace fused, std::string_view gguf,
                                                      ModelBuilder& model) {
  const bool down = site_name == down_site_;
  const int64_t hidden = model.spec.hidden_size;
  lora::Site site{.experts = spec_.experts,
                  .in = down ? spec_.width : hidden,
                  .out = down ? hidden : spec_.width,
                  .moe_layer = module_,
                  .role = lora::SiteRole::kExpert};
  site.fused = std::move(fused);
  site.fused.module = fused_block() + ".experts";
  site.gguf = model.gguf_place(gguf);
  std::vector<nn::FrozenWeight> stack;
  for (int64_t e = 0; e < spec_.experts; ++e) {
    site.modules.push_back(concat(module_, ".", spec_.names.experts, ".", e, ".", name));
    stack.push_back(take_expert(site, e, site_name, model));
  }
  model.work_of(lora::SiteRole::kExpert) += product(site.in, site.out);
  model.sites[site_name] = std::move(site);
  return stack;
}

/// Takes one matrix of an expert. Where the engine stacks experts, gate and up form one stack and down another.
nn::FrozenWeight MixtureLeaf::take_expert(const lora::Site& site, int64_t index, const std::string& site_name,
                                          ModelBuilder& model) {
  const auto name = site.modules.back() + ".weight";
  if (!model.engine().stacks_weights()) return model.take_weight(name, {site.out, site.in});
  const bool down = site_name == down_site_, up = site_name == up_site_;
  return model.take_into(down ? experts_.down_stack : experts_.gate_up_stack, spec_.experts,
                         down ? site.out : 2 * site.out, index, up ? site.out : 0, name, {site.out, site.in});
}

at::Tensor MixtureLeaf::operator()(const at::Tensor& x_RD, const LayerPass& pass) const {
  const auto y_RD = routed(x_RD, pass);
  return shared_ ? y_RD + shared(x_RD, pass) : y_RD;
}

nn::Routing MixtureLeaf::route(const at::Tensor& logits_RE, const LayerPass& pass) const {
  nn::RouterOptions router = pass.options.router;
  if (router.top_k == 0) router.top_k = spec_.top_k;
  const auto found = router.modulation.find(module_);
  const auto phi_E = found == router.modulation.end() ? at::Tensor() : found->second;
  if (!spec_.router.is_plain()) return nn::scored_route(logits_RE, router, phi_E, spec_.router);
  return pass.engine.route(logits_RE, router, phi_E, spec_.gate.renormalise);
}

at::Tensor MixtureLeaf::routed(const at::Tensor& x_RD, const LayerPass& pass) const {
  const auto logits_RE = router_(x_RD, pass);
  const auto routing = route(logits_RE, pass);
  pass.engine.record(module_, logits_RE, routing.experts);
  return pass.engine.experts(x_RD, routing, expert_layer(pass.options), pass.layer);
}

nn::ExpertLayer MixtureLeaf::expert_layer(const ForwardOptions& options) const {
  return {experts_, {factors_at(options, gate_site_), factors_at(options, up_site_), factors_at(options, down_site_)}};
}

at::Tensor MixtureLeaf::shared(const at::Tensor& x_RD, const LayerPass& pass) const {
  const auto y_RD = (*shared_)(x_RD, pass);
  return shared_gate_ ? at::sigmoid((*shared_gate_)(x_RD, pass)) * y_RD : y_RD;
}

}  // namespace evenkeel::models
