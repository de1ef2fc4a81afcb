#include "nn/kernels/layers/expert_batch.h"

#include <algorithm>
#include <span>

#include "base/system/parallel.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::nn::kernels {
namespace {

// Writes the slots of an expert with a live token to workspace.slots and returns them.
template <typename T>
std::span<const int64_t> live_slots(const ExpertBatch<T>& batch, int64_t e, ExpertWorkspace<T>& workspace) {
  workspace.slots.clear();
  for (int64_t i = 0; i < batch.slots.rows(e); ++i) {
    const int64_t slot = batch.slots.first(e) + i;
    if (batch.is_live(batch.slots.token[static_cast<size_t>(slot)])) workspace.slots.push_back(slot);
  }
  return workspace.slots;
}

// Calls f(i, slots[i]) for all slots. Runs in parallel if the expert is data-parallel.
template <typename F>
void for_each_row(std::span<const int64_t> slots, int64_t width, const F& f) {
  for_each_range(static_cast<int64_t>(slots.size()), row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i, slots[static_cast<size_t>(i)]);
  });
}

// Gathers the rows of the tokens of `slots` from [T, width].
template <typename T>
T* gather_tokens(const T* rows, const ExpertBatch<T>& batch, std::span<const int64_t> slots, int64_t width,
                 Scratch<T>& scratch) {
  T* out = scratch.at_least(static_cast<int64_t>(slots.size()) * width);
  for_each_row(slots, width, [&](int64_t i, int64_t slot) {
    std::copy_n(rows + batch.slots.token[static_cast<size_t>(slot)] * width, width, out + i * width);
  });
  return out;
}

// Returns the rows of `slots` from [S, width]: in place if all slots of the expert are live, else a copy.
template <typename T>
T* slot_rows(T* rows, const ExpertBatch<T>& batch, int64_t e, std::span<const int64_t> slots, int64_t width,
             Scratch<T>& scratch) {
  if (static_cast<int64_t>(slots.size()) == batch.slots.rows(e)) return rows + batch.slots.first(e) * width;
  T* out = scratch.at_least(static_cast<int64_t>(slots.size()) * width);
  for_each_row(slots, width,
               [&](int64_t i, int64_t slot) { std::copy_n(rows + slot * width, width, out + i * width); });
  return out;
}

// Writes the rows of an expert to their slots or tokens.
template <typename T>
void scatter_rows(const ExpertBatch<T>& batch, const TokenRows<T>& out, std::span<const int64_t> slots, const T* rows) {
  const int64_t width = batch.hidden;
  for_each_row(slots, width, [&](int64_t i, int64_t slot) {
    const T* row = rows + i * width;
    if (out.by_slot) return void(std::copy_n(row, width, out.by_slot + slot * width));
    const int64_t token = batch.slots.token[static_cast<size_t>(slot)];
    scaled_copy(out.weights ? out.weights[token] : T(1), row, out.by_token + token * width, width);
  });
}

// Returns memory for the rows of an expert: its slots if all are live, else scratch memory.
template <typename T>
T* row_buffer(const ExpertBatch<T>& batch, const TokenRows<T>& out, int64_t e, size_t rows, Scratch<T>& scratch) {
  if (out.by_slot && static_cast<int64_t>(rows) == batch.slots.rows(e))
    return out.by_slot + batch.slots.first(e) * batch.hidden;
  return scratch.at_least(static_cast<int64_t>(rows) * batch.hidden);
}

template <typename T>
void forward_one(const ExpertBatch<T>& batch, int64_t e, const TokenRows<T>& out, ExpertWorkspace<T>& workspace) {
  const auto slots = live_slots(batch, e, workspace);
  const auto rows = static_cast<int64_t>(slots.size()), first = batch.slots.first(e), ranks = batch.ranks();
  const T* x = gather_tokens(batch.x, batch, slots, batch.hidden, workspace.x);
  const auto& all = batch.saved;
  const SavedActivations<T> saved{all.g ? all.g + first * batch.width : workspace.g.at_least(rows * batch.width),
                                  all.u ? all.u + first * batch.width : workspace.u.at_least(rows * batch.width),
                                  all.xa ? all.xa + first * ranks : workspace.xa.at_least(rows * ranks)};
  T* y = row_buffer(batch, out, e, slots.size(), workspace.y);
  expert_forward(batch.expert(e), batch.products, x, rows, saved, y, workspace);
  if (!out.by_slot) scatter_rows(batch, out, slots, y);
}

template <typename T>
void backward_one(const ExpertBatch<T>& batch, int64_t e, const T* dy_TD, const ExpertBatchGradients<T>& grads,
                  ExpertWorkspace<T>& workspace) {
  const auto slots = live_slots(batch, e, workspace);
  const auto rows = static_cast<int64_t>(slots.size());
  if (rows == 0) return;
  const T* x = gather_tokens(batch.x, batch, slots, batch.hidden, workspace.x);
  const T* dy = gather_tokens(dy_TD, batch, slots, batch.hidden, workspace.dy);
  const SavedActivations<T> saved{slot_rows(batch.saved.g, batch, e, slots, batch.width, workspace.g),
                                  slot_rows(batch.saved.u, batch, e, slots, batch.width, workspace.u),
                                  slot_rows(batch.saved.xa, batch, e, slots, batch.ranks(), workspace.xa)};
  const auto choice = [&](int64_t i) { return batch.slots.choice[static_cast<size_t>(slots[static_cast<size_t>(i)])]; };
  workspace.row_weights.resize(2 * slots.size());
  T *weights = workspace.row_weights.data(), *dweights = weights + rows;
  for (int64_t i = 0; i < rows; ++i) weights[i] = batch.weights[choice(i)];
  ExpertGradients<T> out{.dweights = dweights};
  if (grads.dx.by_token) out.dx = row_buffer(batch, grads.dx, e, slots.size(), workspace.y);
  for (size_t p = 0; p < kProjections; ++p)
    if (!grads.matrices[p].empty()) out.weights[p] = grads.matrices[p][static_cast<size_t>(e)];
  expert_backward<T>(batch.expert(e), batch.products, x, dy, weights, rows, saved, out, workspace);
  for (int64_t i = 0; grads.dweights && i < rows; ++i) grads.dweights[choice(i)] = dweights[i];
  const bool in_place = grads.dx.by_slot && rows == batch.slots.rows(e);
  if (out.dx && !in_place) scatter_rows<T>(batch, grads.dx, slots, out.dx);
}

// Sums the choices of each token, in their order.
template <typename T>
void combine(const ExpertBatch<T>& batch, const TokenRows<T>& out) {
  const int64_t top_k = batch.top_k, width = batch.hidden;
  const auto tokens = static_cast<int64_t>(batch.slots.token.size()) / top_k;
  for_each_range(tokens, row_grain(width * top_k), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      T* row = out.by_token + t * width;
      if (!batch.is_live(t)) std::fill_n(row, width, T(0));
      for (int64_t k = 0; k < top_k && batch.is_live(t); ++k) {
        const int64_t choice = t * top_k + k;
        const T* source = out.by_slot + batch.slots.slot_of[static_cast<size_t>(choice)] * width;
        const T weight = out.weights ? out.weights[choice] : T(1);
        k == 0 ? scaled_copy(weight, source, row, width) : axpy(weight, source, row, width);
      }
    }
  });
}

}  // namespace

template <typename T>
ExpertView<T> ExpertBatch<T>::expert(int64_t e) const {
  ExpertView<T> view;
  for (size_t p = 0; p < kProjections; ++p) {
    view.weights[p] = matrices[p][static_cast<size_t>(e)];
    for (size_t i = 0; i < kLoraBranches; ++i)
      if (lora[p][i].rank > 0) view.lora[p][i] = lora[p][i].expert(e);
  }
  return view;
}

template <typename T>
void experts_forward(const ExpertBatch<T>& batch, const TokenRows<T>& y) {
  for_each_expert<ExpertWorkspace<T>>(
      batch.slots, 3 * batch.hidden * batch.width,
      [&](int64_t e, ExpertWorkspace<T>& workspace) { forward_one(batch, e, y, workspace); });
  if (y.by_slot) combine(batch, y);
}

template <typename T>
void experts_backward(const ExpertBatch<T>& batch, const T* dy_TD, const ExpertBatchGradients<T>& grads) {
  for_each_expert<ExpertWorkspace<T>>(
      batch.slots, 6 * batch.hidden * batch.width,
      [&](int64_t e, ExpertWorkspace<T>& workspace) { backward_one(batch, e, dy_TD, grads, workspace); });
  if (grads.dx.by_slot) combine(batch, grads.dx);
}

#define EK_INSTANTIATE(T)                                                       \
  template struct ExpertBatch<T>;                                               \
  template void experts_forward<T>(const ExpertBatch<T>&, const TokenRows<T>&); \
  template void experts_backward<T>(const ExpertBatch<T>&, const T*, const ExpertBatchGradients<T>&);
EK_INSTANTIATE(float)
EK_INSTANTIATE(double)
#undef EK_INSTANTIATE

}  // namespace evenkeel::nn::kernels
