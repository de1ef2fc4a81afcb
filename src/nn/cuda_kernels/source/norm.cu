#include "common.cuh"

namespace evenkeel::nn::cuda {

// Where a pack of a row lies in its head, and the pack that it is rotated with.
struct RotaryPlace {
  int position, partner;  // in values: of the pack within its head; of the other pack within the row
  float sign;             // of the partner's term, forwards

  __device__ RotaryPlace(int value, int head_width) {
    const int half = head_width / 2;
    position = value % head_width;
    const bool is_first = position < half;
    partner = value + (is_first ? half : -half);
    sign = is_first ? -1.0f : 1.0f;
  }
};

template <typename T, int V>
__device__ void head_norm_forward(const HeadNormForward& a) {
  const int packs = a.width / V;
  const long long row = blockIdx.x, first = row * packs;
  float inverse_rms = 1;
  if (a.factors != nullptr) {
    float sum = 0;
    for (int i = threadIdx.x; i < packs; i += blockDim.x) {
      const auto x = load<T, V>(a.x, first + i);
      for (int v = 0; v < V; ++v) sum += widened(x.values[v]) * widened(x.values[v]);
    }
    inverse_rms = rsqrtf(block_sum(sum) / a.width + a.eps);
    if (threadIdx.x == 0) a.inverse_rms[row] = inverse_rms;
  }
  const long long angles = row / a.rows_per_token * a.head_width;
  const auto factor = [&](int value) { return a.factors != nullptr ? inverse_rms * a.factors[value] : 1.0f; };
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    auto x = load<T, V>(a.x, first + i);
    const RotaryPlace place(i * V, a.head_width);
    Pack<T, V> other;
    if (a.cosines != nullptr) other = load<T, V>(a.x, first + place.partner / V);
    for (int v = 0; v < V; ++v) {
      float y = widened(x.values[v]) * factor(i * V + v);
      if (a.cosines != nullptr)
        y = y * a.cosines[angles + place.position + v] +
            place.sign * widened(other.values[v]) * factor(place.partner + v) * a.sines[angles + place.position + v];
      x.values[v] = narrowed<T>(y);
    }
    store<T, V>(a.y, first + i, x);
  }
}

// The gradient of a pack of the normalised row, before the factors: dy rotated back.
template <typename T, int V>
__device__ void rotated_back(const HeadNormBackward& a, long long first, int pack, long long angles, float (&out)[V]) {
  const auto dy = load<T, V>(a.dy, first + pack);
  for (int v = 0; v < V; ++v) out[v] = widened(dy.values[v]);
  if (a.cosines == nullptr) return;
  const RotaryPlace place(pack * V, a.head_width);
  const auto other = load<T, V>(a.dy, first + place.partner / V);
  for (int v = 0; v < V; ++v)
    out[v] = out[v] * a.cosines[angles + place.position + v] -
             place.sign * widened(other.values[v]) * a.sines[angles + place.position + v];
}

template <typename T, int V>
__device__ void head_norm_backward(const HeadNormBackward& a) {
  const int packs = a.width / V;
  const long long row = blockIdx.x, first = row * packs, angles = row / a.rows_per_token * a.head_width;
  float inverse_rms = 1, mean = 0;
  float dy[V];
  if (a.factors != nullptr) {
    inverse_rms = a.inverse_rms[row];
    float sum = 0;
    for (int i = threadIdx.x; i < packs; i += blockDim.x) {
      const auto x = load<T, V>(a.x, first + i);
      rotated_back<T, V>(a, first, i, angles, dy);
      for (int v = 0; v < V; ++v) sum += dy[v] * a.factors[i * V + v] * widened(x.values[v]);
    }
    mean = block_sum(sum) / a.width * inverse_rms * inverse_rms;
  }
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    rotated_back<T, V>(a, first, i, angles, dy);
    Pack<T, V> x, dx;
    if (a.factors != nullptr) x = load<T, V>(a.x, first + i);
    for (int v = 0; v < V; ++v)
      dx.values[v] = narrowed<T>(
          a.factors != nullptr ? inverse_rms * (dy[v] * a.factors[i * V + v] - widened(x.values[v]) * mean) : dy[v]);
    store<T, V>(a.dx, first + i, dx);
  }
}

// The values of float32 rows that belong to a pack of V values, which may take several loads of 16 bytes.
template <int V>
struct Floats {
  static constexpr int kLoad = V < 4 ? V : 4;
  float values[V];
  __device__ void read(const float* from, long long pack) {
    for (int i = 0; i < V / kLoad; ++i) {
      const auto part = load<float, kLoad>(from, pack * (V / kLoad) + i);
      for (int v = 0; v < kLoad; ++v) values[i * kLoad + v] = part.values[v];
    }
  }
  __device__ void write(float* to, long long pack) const {
    for (int i = 0; i < V / kLoad; ++i) {
      Pack<float, kLoad> part;
      for (int v = 0; v < kLoad; ++v) part.values[v] = values[i * kLoad + v];
      store<float, kLoad>(to, pack * (V / kLoad) + i, part);
    }
  }
};

template <typename T, int V>
__device__ void residual_norm_forward(const ResidualNormForward& a) {
  const int packs = a.width / V;
  const long long row = blockIdx.x, first = row * packs;
  const float* rows = a.added != nullptr ? a.sum : a.x;  // a thread reads again only what it wrote itself
  Floats<V> r;
  float sum = 0;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    r.read(a.x, first + i);
    if (a.added != nullptr) {
      const auto added = load<T, V>(a.added, first + i);
      for (int v = 0; v < V; ++v) r.values[v] += widened(added.values[v]);
      r.write(a.sum, first + i);
    }
    for (int v = 0; v < V; ++v) sum += r.values[v] * r.values[v];
  }
  const float inverse_rms = rsqrtf(block_sum(sum) / a.width + a.eps);
  if (threadIdx.x == 0) a.inverse_rms[row] = inverse_rms;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    r.read(rows, first + i);
    Pack<T, V> y;
    for (int v = 0; v < V; ++v) {
      r.values[v] = r.values[v] * inverse_rms * a.factors[i * V + v];
      y.values[v] = narrowed<T>(r.values[v]);
    }
    if (a.y != nullptr)
      store<T, V>(a.y, first + i, y);
    else
      r.write(a.y_float, first + i);
  }
}

// Reads the gradient of the norm in float32.
template <typename T, int V>
__device__ Floats<V> gradient_of_norm(const ResidualNormBackward& a, long long pack) {
  Floats<V> dy;
  if (a.dy == nullptr) {
    dy.read(a.dy_float, pack);
    return dy;
  }
  const auto given = load<T, V>(a.dy, pack);
  for (int v = 0; v < V; ++v) dy.values[v] = widened(given.values[v]);
  return dy;
}

template <typename T, int V>
__device__ void residual_norm_backward(const ResidualNormBackward& a) {
  const int packs = a.width / V;
  const long long row = blockIdx.x, first = row * packs;
  const float inverse_rms = a.inverse_rms[row];
  Floats<V> r, dx;
  float sum = 0;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    const auto dy = gradient_of_norm<T, V>(a, first + i);
    r.read(a.sum, first + i);
    for (int v = 0; v < V; ++v) sum += dy.values[v] * a.factors[i * V + v] * r.values[v];
  }
  const float mean = block_sum(sum) / a.width * inverse_rms * inverse_rms;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    const auto dy = gradient_of_norm<T, V>(a, first + i);
    r.read(a.sum, first + i);
    if (a.dsum != nullptr) dx.read(a.dsum, first + i);
    Pack<T, V> dadded;
    for (int v = 0; v < V; ++v) {
      const float through_norm = inverse_rms * (dy.values[v] * a.factors[i * V + v] - r.values[v] * mean);
      dx.values[v] = through_norm + (a.dsum != nullptr ? dx.values[v] : 0);
      dadded.values[v] = narrowed<T>(dx.values[v]);
    }
    dx.write(a.dx, first + i);
    if (a.dadded != nullptr) store<T, V>(a.dadded, first + i, dadded);
  }
}

}  // namespace evenkeel::nn::cuda

EVENKEEL_KERNEL(head_norm_forward, HeadNormForward)
EVENKEEL_KERNEL(head_norm_backward, HeadNormBackward)
EVENKEEL_KERNEL(residual_norm_forward, ResidualNormForward)
EVENKEEL_KERNEL(residual_norm_backward, ResidualNormBackward)
