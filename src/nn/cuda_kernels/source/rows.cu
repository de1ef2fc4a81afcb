#include "common.cuh"

namespace evenkeel::nn::cuda {

template <typename T, int V>
__device__ void gather_rows(const GatherRows& a) {
  const int packs = a.width / V;
  const long long from = a.index[blockIdx.x] * packs, to = static_cast<long long>(blockIdx.x) * packs;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) store<T, V>(a.y, to + i, load<T, V>(a.x, from + i));
}

template <typename T, int V>
__device__ void sum_rows(const SumRows& a) {
  const int packs = a.width / V;
  const long long row = blockIdx.x, end = row + 1 < a.rows ? a.begins[row + 1] : a.count;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    float sums[V] = {};
    for (long long n = a.begins[row]; n < end; ++n) {
      const long long pack = a.order[n] * packs + i;
      const float weight = a.weights != nullptr ? widened(static_cast<const T*>(a.weights)[n]) : 1.0f;
      const auto x = load<T, V>(a.x, pack);
      Pack<T, V> second;
      if (a.second != nullptr) second = load<T, V>(a.second, pack);
      for (int v = 0; v < V; ++v)
        sums[v] += weight * (widened(x.values[v]) + (a.second != nullptr ? widened(second.values[v]) : 0));
    }
    Pack<T, V> y;
    for (int v = 0; v < V; ++v) y.values[v] = narrowed<T>(sums[v]);
    store<T, V>(a.y, row * packs + i, y);
  }
}

}  // namespace evenkeel::nn::cuda

EVENKEEL_KERNEL(gather_rows, GatherRows)
EVENKEEL_KERNEL(sum_rows, SumRows)
