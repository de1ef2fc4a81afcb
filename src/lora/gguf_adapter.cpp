#include "lora/gguf_adapter.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/format/gguf.h"
#include "base/plain/error.h"

namespace evenkeel::lora {
namespace {

double alpha_of(const LoraFactors& factors) { return factors.scaling * static_cast<double>(factors.rank()); }

/// Returns the value of adapter.lora.alpha. \throws kNumeric when float32 cannot hold it
float stored_alpha(double alpha) {
  const auto stored = static_cast<float>(alpha);
  EK_CHECK(std::isfinite(stored) && stored != 0, kNumeric, "the adapter's alpha is ", alpha,
           ", which float32, the type of adapter.lora.alpha, does not hold");
  return stored;
}

/// Permutes output rows for a rotary embedding of adjacent pairs: in each head, rows of the two halves alternate.
at::Tensor interleaved(const at::Tensor& b, int64_t heads) {
  return b.view({heads, 2, -1, b.size(-1)}).transpose(1, 2).reshape(b.sizes());
}

/// Returns the alpha of the file: that of the first site that changes anything. \throws kConfig if none does
double common_alpha(const AdapterState& adapters) {
  for (const auto& [name, factors] : adapters)
    if (const double alpha = alpha_of(factors); alpha != 0) return alpha;
  fail(kConfig, "the adapter changes nothing: rank or scaling of every site is 0, which no GGUF adapter holds");
}

/// B of a site, which llama.cpp multiplies by alpha / r.
at::Tensor gguf_b(const LoraFactors& factors, const GgufPlace& gguf, double alpha) {
  const double rest = alpha_of(factors) / alpha;
  const auto b = rest == 1.0 ? factors.b : (factors.b.to(at::kDouble) * rest).to(at::kFloat);
  return gguf.interleaved_heads > 0 ? interleaved(b, gguf.interleaved_heads) : b;
}

}  // namespace

void save_gguf_adapter(const std::filesystem::path& file, const AdapterState& adapters, const Sites& sites,
                       const std::string& architecture) {
  EK_CHECK(!adapters.empty(), kInternal, "an adapter without sites");
  const double alpha = common_alpha(adapters);
  TensorMap tensors;
  for (const auto& [name, factors] : adapters) {
    const auto& gguf = sites.at(name).gguf;
    EK_CHECK(!factors.core.defined(), kInternal, "the adapter of ", name, " has a core");
    if (alpha_of(factors) == 0) continue;
    EK_CHECK(!gguf.tensor.empty(), kConfig, "llama.cpp has no tensor for the adapter of ", name);
    tensors.emplace(gguf.tensor + ".lora_a", factors.a);
    tensors.emplace(gguf.tensor + ".lora_b", gguf_b(factors, gguf, alpha));
  }
  for (const auto& [name, tensor] : tensors)
    EK_CHECK(is_finite(tensor), kNumeric, "the adapter's tensor ", name,
             " holds a value that is not finite in float32, the type of GGUF adapters");
  save_gguf(file,
            {{"general.architecture", architecture},
             {"general.type", "adapter"},
             {"adapter.type", "lora"},
             {"adapter.lora.alpha", stored_alpha(alpha)}},
            tensors);
}

}  // namespace evenkeel::lora
