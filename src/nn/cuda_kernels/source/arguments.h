/// \file  The arguments of the CUDA kernels. The program and the kernels compile this file, so it includes nothing and
/// uses no type whose width depends on the compiler. Pointers are device addresses; "T" is the type of the kernel's
/// values, float32 or bfloat16; other types are as declared. Arrays are row-major and contiguous. Dimension names: S
/// slots (token-choices sorted by expert), F expert width, N rows, D width, H heads of a token, P head width, T tokens,
/// E experts, K selected experts of a token.
#pragma once

namespace evenkeel::nn::cuda {

/// SwiGLU of the products of gate and up: h = silu(g) u, with silu(g) = g / (1 + exp(-g)). One block per slot.
struct SwigluForward {
  void* gate_up;     ///< [S, 2 F] T: g and u; the term of `lora` is added to it
  const void* lora;  ///< [S, 2 F] T, or null
  void* hidden;      ///< [S, F] T, output: h
  int width;         ///< F
};

/// The gradients of w silu(g) u, where w is the routing weight of a slot. One block per slot.
struct SwigluBackward {
  const void* gate_up;        ///< [S, 2 F] T: g and u
  const void* gradient;       ///< [S, F] T: dh, not yet weighted
  const void* gradient_lora;  ///< [S, F] T, a second term of dh, or null
  const void* weights;        ///< [S] T: w
  const long long* choices;   ///< [S]: where the gradient of a slot's weight is written
  void* gradient_gate_up;     ///< [S, 2 F] T, output: dg and du
  float* gradient_weights;    ///< [S], output: sum of h dh, at `choices`; null: not wanted
  void* hidden;               ///< [S, F] T, output: h; null: not wanted
  int width;                  ///< F
};

/// RMSNorm of rows, then RoPE of the heads in them: y = R(w x / sqrt(mean(x^2) + eps)). One block per row.
struct HeadNormForward {
  const void* x;         ///< [N, D] T
  const float* factors;  ///< [D]: w; null: no norm
  void* y;               ///< [N, D] T, output
  float* inverse_rms;    ///< [N], output; null without norm
  const float* cosines;  ///< [tokens, P]; null: no rotation
  const float* sines;    ///< [tokens, P]; the two halves of a row are equal
  int width;             ///< D, a multiple of P
  int head_width;        ///< P
  int rows_per_token;    ///< N / tokens
  float eps;
};

/// The gradient of HeadNormForward. One block per row.
struct HeadNormBackward {
  const void* dy;            ///< [N, D] T
  const void* x;             ///< [N, D] T; unused without norm
  const float* factors;      ///< [D]; null: no norm
  const float* inverse_rms;  ///< [N]
  const float* cosines;      ///< [tokens, P]; null: no rotation
  const float* sines;        ///< [tokens, P]
  void* dx;                  ///< [N, D] T, output
  int width;                 ///< D
  int head_width;            ///< P
  int rows_per_token;        ///< N / tokens
};

/// Adds the output of a block to the residual stream, which is float32, and normalises the sum for the next block:
/// r = x + a, y = w r / sqrt(mean(r^2) + eps). One block per row.
struct ResidualNormForward {
  const float* x;        ///< [N, D]
  const void* added;     ///< [N, D] T: a; null: nothing is added, and `sum` is not written
  const float* factors;  ///< [D]: w
  float* sum;            ///< [N, D], output: r
  void* y;               ///< [N, D] T, output; null: y_float is written
  float* y_float;        ///< [N, D], output instead of y
  float* inverse_rms;    ///< [N], output
  int width;             ///< D
  float eps;
};

/// The gradients of ResidualNormForward. One block per row.
struct ResidualNormBackward {
  const void* dy;            ///< [N, D] T; null: dy_float is read
  const float* dy_float;     ///< [N, D], read instead of dy
  const float* dsum;         ///< [N, D]: the gradient of r from its other uses; null: none
  const float* sum;          ///< [N, D]: r
  const float* factors;      ///< [D]
  const float* inverse_rms;  ///< [N]
  float* dx;                 ///< [N, D], output
  void* dadded;              ///< [N, D] T, output: the same gradient as dx; null: not wanted
  int width;                 ///< D
};

/// y[n] = x[index[n]]. One block per row.
struct GatherRows {
  const void* x;           ///< [.., D] T
  const long long* index;  ///< [N]
  void* y;                 ///< [N, D] T, output
  int width;               ///< D
};

/// y[r] = the sum of weights[n] x[order[n]] for n from begins[r] up to the next row's begin, in this order, in float32.
/// One block per row of y.
struct SumRows {
  const void* x;            ///< [.., D] T
  const void* second;       ///< [.., D] T: added to x; null: none
  const long long* order;   ///< [count]
  const long long* begins;  ///< [rows]
  const void* weights;      ///< [count] T; null: 1
  void* y;                  ///< [rows, D] T, output
  long long count;
  long long rows;
  int width;  ///< D
};

/// The K experts with the highest logits, by descending logit and then ascending index, NaN first, and their weights by
/// softmax. One warp per token.
struct RouteForward {
  const float* logits;   ///< [T, E]
  long long* chosen;     ///< [T, K], output
  float* weights;        ///< [T, K], output
  float* probabilities;  ///< [T, E], output: softmax over all experts; null: the softmax is over the selected
  int tokens;
  int experts;
  int top_k;
};

/// The gradient of RouteForward. One warp per token.
struct RouteBackward {
  const float* dweights;       ///< [T, K]
  const float* weights;        ///< [T, K]
  const long long* chosen;     ///< [T, K]
  const float* probabilities;  ///< [T, E]; null: the softmax was over the selected
  float* dlogits;              ///< [T, E], output
  int tokens;
  int experts;
  int top_k;
};

/// Number of token-choices in a slice. One block of CountChoices or PlaceChoices reads one slice.
constexpr int kSliceChoices = 256;

/// Counts the choices of each expert in each slice. One block per slice.
struct CountChoices {
  const long long* chosen;  ///< [S], each below E
  int* counts;              ///< [slices, E], output
  int choices;              ///< S
  int experts;
};

/// Turns the counts into the first slot of each expert in each slice. One block.
struct StartSlots {
  int* counts;          ///< [slices, E], replaced by the first slots
  int* ends;            ///< [E], output: the end of the slots of each expert
  unsigned char* idle;  ///< [E], output: 1 for an expert without a slot
  int slices;
  int experts;
};

/// Writes the slots of the choices. Choices of one expert keep their order. One block per slice.
struct PlaceChoices {
  const long long* chosen;  ///< [S]
  const int* starts;        ///< [slices, E]
  long long* order;         ///< [S], output: the choice of each slot
  long long* token;         ///< [S], output: its token, the choice divided by K
  long long* place;         ///< [S], output: the slot of each choice
  int choices;
  int experts;
  int top_k;
};

}  // namespace evenkeel::nn::cuda
