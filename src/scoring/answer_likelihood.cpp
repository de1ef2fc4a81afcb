#include "scoring/answer_likelihood.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/plain/error.h"

namespace evenkeel::scoring {
namespace {

/// Returns the log-probabilities of all targets, row by row, [N] float64.
at::Tensor logprobs_of(const models::CausalLm& model, const models::ForwardOptions& forward,
                       std::span<const data::Example> rows) {
  const auto batch = data::pack(rows);
  const auto rows_ND = model.hidden(batch, forward).index_select(0, batch.target_rows.to(model.device()));
  return model.target_logprobs(rows_ND, batch.targets, forward).to(at::kCPU, at::kDouble);
}

}  // namespace

size_t rows_together(std::span<const data::Example> rows, int64_t batch_tokens) {
  int64_t tokens = 0;
  size_t count = 0;
  do tokens += static_cast<int64_t>(rows[count++].ids.size());
  while (count < rows.size() && tokens + static_cast<int64_t>(rows[count].ids.size()) <= batch_tokens);
  return count;
}

std::vector<AnswerLikelihood> answer_likelihoods(const models::CausalLm& model, const models::ForwardOptions& forward,
                                                 std::span<const data::Example> rows,
                                                 std::span<const int64_t> numbers) {
  const at::NoGradGuard no_grad;
  const auto logprobs_N = logprobs_of(model, forward, rows);
  const double* next = logprobs_N.const_data_ptr<double>();
  std::vector<AnswerLikelihood> answers;
  for (const auto& row : rows) {
    AnswerLikelihood answer{.tokens = row.targets()};
    for (int64_t token = 0; token < answer.tokens; ++token) answer.logprob += *next++;
    EK_CHECK(std::isfinite(answer.logprob), kNumeric, "row ", numbers[answers.size()],
             ": the model's logits are not finite");
    answers.push_back(answer);
  }
  return answers;
}

}  // namespace evenkeel::scoring
