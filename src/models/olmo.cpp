// OLMo: LayerNorm without parameters, attention and a dense SwiGLU block in every layer.
// Source: OLMo (Groeneveld et al. 2024); layout and order of operations of transformers' OlmoForCausalLM.
// Dimension names: T tokens, D hidden, F intermediate.

#include <ATen/ATen.h>

#include "models/decoder.h"
#include "models/families.h"
#include "nn/linear.h"

namespace evenkeel {
namespace {

constexpr DecoderKind kOlmo{.family = "olmo", .rms_norm = false, .qk_norm = false};

struct Mlp {
  at::Tensor gate, up;  // [F, D]
  at::Tensor down;      // [D, F]
};

class Olmo final : public CausalLm {
 public:
  Olmo(const ModelConfig& config, TensorSource& source) : decoder_(kOlmo, config) {
    decoder_.take(source, [&](size_t, const std::string& prefix) { mlps_.push_back(take_mlp(prefix, source)); });
  }

  const ModelSpec& spec() const override { return decoder_.spec; }
  const at::Tensor& head() const override { return decoder_.head(); }
  const std::string& config_json() const override { return decoder_.config_json(); }
  Sites sites(std::span<const std::string> targets) const override { return decoder_.sites_of(targets); }

  at::Tensor hidden(const PackedBatch& batch, const ForwardOptions& options) const override {
    return decoder_.hidden(batch, options,
                           [&](size_t layer, const at::Tensor& x_TD) { return swiglu(layer, x_TD, options); });
  }

  TensorMap parameters() const override {
    auto all = decoder_.parameters();
    for (size_t i = 0; i < mlps_.size(); ++i) {
      const auto& prefix = decoder_.prefix(i);
      all[prefix + "mlp.gate_proj.weight"] = mlps_[i].gate;
      all[prefix + "mlp.up_proj.weight"] = mlps_[i].up;
      all[prefix + "mlp.down_proj.weight"] = mlps_[i].down;
    }
    return all;
  }

 private:
  Mlp take_mlp(const std::string& prefix, TensorSource& source) {
    const auto take = [&](std::string_view name, int64_t in, int64_t out) {
      const auto site = concat(prefix, "mlp.", name);
      decoder_.sites[site] = {0, in, out, ""};
      return source.take(site + ".weight", {out, in});
    };
    const int64_t hidden = spec().hidden_size, width = spec().intermediate_size;
    Mlp mlp;
    mlp.gate = take("gate_proj", hidden, width);
    mlp.up = take("up_proj", hidden, width);
    mlp.down = take("down_proj", width, hidden);
    return mlp;
  }

  at::Tensor swiglu(size_t layer, const at::Tensor& x_TD, const ForwardOptions& options) const {
    const FactorsBySite beside{options.adapters, options.base_change};
    const auto project = [&](const at::Tensor& x, const at::Tensor& w, std::string_view name) {
      return linear(x, w, beside.at(decoder_.prefix(layer), concat("mlp.", name)));
    };
    const auto& mlp = mlps_[layer];
    return project(at::silu(project(x_TD, mlp.gate, "gate_proj")) * project(x_TD, mlp.up, "up_proj"), mlp.down,
                   "down_proj");
  }

  Decoder decoder_;
  std::vector<Mlp> mlps_;
};

}  // namespace

std::unique_ptr<CausalLm> make_olmo(const ModelConfig& config, TensorSource& source) {
  return std::make_unique<Olmo>(config, source);
}

}  // namespace evenkeel
