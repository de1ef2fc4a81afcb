#include "common.cuh"

namespace evenkeel::nn::cuda {

using Rank = unsigned long long;

// A number that is higher for a better logit, and of equal logits for a lower index; no two are equal, and none is 0 or
// ~0. NaN is better than any number, and zeros of both signs are equal, as for LibTorch's stable sort.
__device__ inline Rank rank_of(float logit, int index) {
  unsigned bits = __float_as_uint(logit == 0 ? 0.0f : logit);
  bits = logit != logit ? 0xfffffffeu : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<Rank>(bits) << 32 | (0xffffffffu - static_cast<unsigned>(index));
}

__device__ inline int index_of(Rank rank) { return static_cast<int>(0xffffffffu - static_cast<unsigned>(rank)); }

// The best rank below `bound` of one token, to all lanes.
__device__ inline Rank best_below(Rank bound, const float* logits, int experts, int lane) {
  Rank best = 0;
  for (int e = lane; e < experts; e += kWarp) {
    const Rank rank = rank_of(logits[e], e);
    if (rank < bound && rank > best) best = rank;
  }
  for (int other = kWarp / 2; other > 0; other /= 2) {
    const Rank theirs = __shfl_xor_sync(0xffffffffu, best, other);
    if (theirs > best) best = theirs;
  }
  return best;
}

__device__ inline void route_forward(const RouteForward& a) {
  const int lane = threadIdx.x % kWarp;
  const long long token = static_cast<long long>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (token >= a.tokens) return;  // whole warps, so that the others of a shuffle are there
  const float* logits = a.logits + token * a.experts;
  long long* chosen = a.chosen + token * a.top_k;
  float* weights = a.weights + token * a.top_k;
  const Rank first = best_below(~Rank{0}, logits, a.experts, lane);
  const float highest = logits[index_of(first)];
  float sum = 0;
  Rank rank = first;
  for (int k = 0; k < a.top_k; ++k) {
    if (k > 0) rank = best_below(rank, logits, a.experts, lane);
    sum += expf(logits[index_of(rank)] - highest);  // in the order of the ranks, the same in each lane
    if (lane == 0) chosen[k] = index_of(rank);
  }
  if (a.probabilities != nullptr) {
    sum = 0;
    for (int e = lane; e < a.experts; e += kWarp) sum += expf(logits[e] - highest);
    sum = warp_sum(sum);
    for (int e = lane; e < a.experts; e += kWarp)
      a.probabilities[token * a.experts + e] = expf(logits[e] - highest) / sum;
  }
  __syncwarp();
  for (int k = lane; k < a.top_k; k += kWarp) weights[k] = expf(logits[chosen[k]] - highest) / sum;
}

// For a softmax over all, dm_e = p_e (g_e - sum_j g_j w_j), where g is 0 for an expert that is not selected; over the
// selected, the same with their weights, and 0 for the others.
__device__ inline void route_backward(const RouteBackward& a) {
  const int lane = threadIdx.x % kWarp;
  const long long token = static_cast<long long>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (token >= a.tokens) return;
  const long long first = token * a.top_k;
  float mean = 0;
  for (int k = 0; k < a.top_k; ++k) mean += a.dweights[first + k] * a.weights[first + k];
  for (int e = lane; e < a.experts; e += kWarp) {
    float gradient = 0, weight = a.probabilities != nullptr ? a.probabilities[token * a.experts + e] : 0;
    for (int k = 0; k < a.top_k; ++k)
      if (a.chosen[first + k] == e) gradient = a.dweights[first + k], weight = a.weights[first + k];
    a.dlogits[token * a.experts + e] = weight * (gradient - mean);
  }
}

// The experts of one slice of the choices, in shared memory. All threads call it.
__device__ inline int read_slice(const long long* chosen, int choices, int (&slice)[kSliceChoices]) {
  const int begin = blockIdx.x * kSliceChoices, length = min(kSliceChoices, choices - begin);
  for (int i = threadIdx.x; i < length; i += blockDim.x) slice[i] = static_cast<int>(chosen[begin + i]);
  __syncthreads();
  return length;
}

__device__ inline void count_choices(const CountChoices& a) {
  __shared__ int slice[kSliceChoices];
  const int length = read_slice(a.chosen, a.choices, slice);
  for (int e = threadIdx.x; e < a.experts; e += blockDim.x) {
    int count = 0;
    for (int i = 0; i < length; ++i) count += slice[i] == e ? 1 : 0;
    a.counts[static_cast<long long>(blockIdx.x) * a.experts + e] = count;
  }
}

// Returns the sum of the values of earlier threads and adds that of all to `total`. All threads call it, at most 1,024.
__device__ inline int sum_before(int value, int& total) {
  __shared__ int sums[1024];
  const int me = threadIdx.x, threads = blockDim.x;
  __syncthreads();  // an earlier sum may still be read
  sums[me] = value;
  __syncthreads();
  for (int distance = 1; distance < threads; distance *= 2) {
    const int before = me >= distance ? sums[me - distance] : 0;
    __syncthreads();
    sums[me] += before;
    __syncthreads();
  }
  total += sums[threads - 1];
  return sums[me] - value;
}

__device__ inline void start_slots(const StartSlots& a) {
  int done = 0;  // slots of the experts before those of this round
  for (int begin = 0; begin < a.experts; begin += blockDim.x) {
    const int e = begin + static_cast<int>(threadIdx.x);
    int count = 0;
    if (e < a.experts)
      for (int s = 0; s < a.slices; ++s) count += a.counts[static_cast<long long>(s) * a.experts + e];
    const int before = done;
    int start = before + sum_before(count, done);
    if (e >= a.experts) continue;
    a.ends[e] = start + count;
    a.idle[e] = count == 0 ? 1 : 0;
    for (int s = 0; s < a.slices; ++s) {
      int& place = a.counts[static_cast<long long>(s) * a.experts + e];
      const int here = place;
      place = start;
      start += here;
    }
  }
}

__device__ inline void place_choices(const PlaceChoices& a) {
  __shared__ int slice[kSliceChoices];
  const int length = read_slice(a.chosen, a.choices, slice), begin = blockIdx.x * kSliceChoices;
  for (int e = threadIdx.x; e < a.experts; e += blockDim.x) {
    int slot = a.starts[static_cast<long long>(blockIdx.x) * a.experts + e];
    for (int i = 0; i < length; ++i) {
      if (slice[i] != e) continue;
      const int choice = begin + i;
      a.order[slot] = choice;
      a.token[slot] = choice / a.top_k;
      a.place[choice] = slot++;
    }
  }
}

}  // namespace evenkeel::nn::cuda

EVENKEEL_ENTRY(route_forward, RouteForward, evenkeel::nn::cuda::route_forward)
EVENKEEL_ENTRY(route_backward, RouteBackward, evenkeel::nn::cuda::route_backward)
EVENKEEL_ENTRY(count_choices, CountChoices, evenkeel::nn::cuda::count_choices)
EVENKEEL_ENTRY(start_slots, StartSlots, evenkeel::nn::cuda::start_slots)
EVENKEEL_ENTRY(place_choices, PlaceChoices, evenkeel::nn::cuda::place_choices)
