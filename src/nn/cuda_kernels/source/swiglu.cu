#include "common.cuh"

namespace evenkeel::nn::cuda {

template <typename T, int V>
__device__ void swiglu_forward(const SwigluForward& a) {
  const int packs = a.width / V;
  const long long slot = blockIdx.x, gates = slot * 2 * packs, ups = gates + packs;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    auto g = load<T, V>(a.gate_up, gates + i), u = load<T, V>(a.gate_up, ups + i);
    if (a.lora != nullptr) {
      const auto lora_g = load<T, V>(a.lora, gates + i), lora_u = load<T, V>(a.lora, ups + i);
      for (int v = 0; v < V; ++v) {
        g.values[v] = narrowed<T>(widened(g.values[v]) + widened(lora_g.values[v]));
        u.values[v] = narrowed<T>(widened(u.values[v]) + widened(lora_u.values[v]));
      }
      store<T, V>(a.gate_up, gates + i, g);
      store<T, V>(a.gate_up, ups + i, u);
    }
    Pack<T, V> h;
    for (int v = 0; v < V; ++v) {
      const float gate = widened(g.values[v]);
      h.values[v] = narrowed<T>(gate / (1 + expf(-gate)) * widened(u.values[v]));
    }
    store<T, V>(a.hidden, slot * packs + i, h);
  }
}

template <typename T, int V>
__device__ void swiglu_backward(const SwigluBackward& a) {
  const int packs = a.width / V;
  const long long slot = blockIdx.x, gates = slot * 2 * packs, ups = gates + packs, row = slot * packs;
  const float weight = widened(static_cast<const T*>(a.weights)[slot]);
  float sum = 0;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    const auto g = load<T, V>(a.gate_up, gates + i), u = load<T, V>(a.gate_up, ups + i),
               d = load<T, V>(a.gradient, row + i);
    Pack<T, V> lora, dg, du, h;
    if (a.gradient_lora != nullptr) lora = load<T, V>(a.gradient_lora, row + i);
    for (int v = 0; v < V; ++v) {
      const float gate = widened(g.values[v]), up = widened(u.values[v]), sigmoid = 1 / (1 + expf(-gate));
      const float silu = gate / (1 + expf(-gate));
      const float dh = widened(d.values[v]) + (a.gradient_lora != nullptr ? widened(lora.values[v]) : 0);
      sum += silu * up * dh;
      dg.values[v] = narrowed<T>(weight * dh * up * sigmoid * (1 + gate * (1 - sigmoid)));
      du.values[v] = narrowed<T>(weight * dh * silu);
      h.values[v] = narrowed<T>(silu * up);
    }
    store<T, V>(a.gradient_gate_up, gates + i, dg);
    store<T, V>(a.gradient_gate_up, ups + i, du);
    if (a.hidden != nullptr) store<T, V>(a.hidden, row + i, h);
  }
  if (a.gradient_weights == nullptr) return;
  sum = block_sum(sum);
  if (threadIdx.x == 0) a.gradient_weights[a.choices[slot]] = sum;
}

}  // namespace evenkeel::nn::cuda

EVENKEEL_KERNEL(swiglu_forward, SwigluForward)
EVENKEEL_KERNEL(swiglu_backward, SwigluBackward)
