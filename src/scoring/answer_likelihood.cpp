#include "scoring/answer_likelihood.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/error.h"
#include "nn/loss.h"

namespace evenkeel {
namespace {

/// Rows behind `first` that still go into its batch; one at least.
size_t rows_together(std::span<const Example> rows, size_t first, int64_t batch_tokens) {
  int64_t tokens = 0;
  size_t count = 0;
  do tokens += static_cast<int64_t>(rows[first + count++].ids.size());
  while (first + count < rows.size() && tokens + static_cast<int64_t>(rows[first + count].ids.size()) <= batch_tokens);
  return count;
}

/// [N] float64, row after row.
at::Tensor logprobs_of(const CausalLm& model, const ForwardOptions& forward, std::span<const Example> rows) {
  const auto batch = pack(rows);
  const auto rows_ND = model.hidden(batch, forward).index_select(0, batch.target_rows);
  return target_logprobs(rows_ND, model.head(), batch.targets, forward.products).to(at::kDouble);
}

}  // namespace

void answer_likelihoods(const CausalLm& model, const ForwardOptions& forward, std::span<const Example> rows,
                        const std::function<void(size_t, const AnswerLikelihood&)>& on_row, int64_t batch_tokens) {
  const at::NoGradGuard no_grad;
  for (size_t first = 0; first < rows.size();) {
    const auto together = rows.subspan(first, rows_together(rows, first, batch_tokens));
    const auto logprobs_N = logprobs_of(model, forward, together);
    const double* next = logprobs_N.const_data_ptr<double>();
    for (size_t i = 0; i < together.size(); ++i) {
      AnswerLikelihood answer{.tokens = together[i].targets()};
      for (int64_t token = 0; token < answer.tokens; ++token) answer.logprob += *next++;
      EK_CHECK(std::isfinite(answer.logprob), kNumeric, "row ", first + i, ": the model's logits are not finite");
      on_row(first + i, answer);
    }
    first += together.size();
  }
}

}  // namespace evenkeel
