#include "scoring/likelihood.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/plain/error.h"

namespace evenkeel::scoring {
namespace {

/// Returns the end of the batch that begins with text `first`. A batch has at least one text.
size_t batch_end(std::span<const std::vector<int64_t>> texts, size_t first, int64_t batch_tokens) {
  int64_t tokens = 0;
  size_t end = first;
  do tokens += static_cast<int64_t>(texts[end++].size());
  while (end < texts.size() && tokens + static_cast<int64_t>(texts[end].size()) <= batch_tokens);
  return end;
}

std::vector<double> target_logprobs_of(const models::CausalLm& model, const models::ForwardOptions& forward,
                                       const data::PackedBatch& batch, const at::Tensor& hidden_TD) {
  if (batch.targets.numel() == 0) return {};
  const auto rows_ND = hidden_TD.index_select(0, batch.target_rows.to(model.device()));
  const auto logprobs_N = model.target_logprobs(rows_ND, batch.targets, forward).to(at::kCPU, at::kDouble);
  return {logprobs_N.const_data_ptr<double>(), logprobs_N.const_data_ptr<double>() + logprobs_N.numel()};
}

/// Returns whether each token after the first was the likeliest.
/// \param logits_TV  logits after every token; the last row is not used
std::vector<bool> likeliest(const std::vector<int64_t>& ids, const at::Tensor& logits_TV) {
  const auto best_T = logits_TV.argmax(1);
  const auto* best = best_T.const_data_ptr<int64_t>();
  std::vector<bool> greedy;
  for (size_t i = 1; i < ids.size(); ++i) greedy.push_back(best[i - 1] == ids[i]);
  return greedy;
}

void check_finite(const TextScore& score, size_t index) {
  const bool known =
      std::isfinite(score.logprob) && (!score.logits.defined() || score.logits.isfinite().all().item<bool>());
  EK_CHECK(known, kNumeric, "text ", index, ": the model's logits are not finite");
}

}  // namespace

void score_texts(const models::CausalLm& model, const models::ForwardOptions& forward,
                 std::span<const std::vector<int64_t>> texts, const ScoreOptions& options,
                 const std::function<void(size_t, const TextScore&)>& on_score) {
  const at::NoGradGuard no_grad;
  for (size_t first = 0, end = 0; first < texts.size(); first = end) {
    end = batch_end(texts, first, options.batch_tokens);
    const auto batch = data::pack_ids(texts.subspan(first, end - first));
    const auto hidden_TD = model.hidden(batch, forward);
    const auto logprobs = target_logprobs_of(model, forward, batch, hidden_TD);
    auto next = logprobs.begin();
    for (size_t i = first; i < end; ++i) {
      TextScore score;
      const auto length = static_cast<int64_t>(texts[i].size());
      score.token_logprobs.assign(next, next + (length - 1));
      next += length - 1;
      for (const double one : score.token_logprobs) score.logprob += one;
      if (options.logits || options.greedy)
        score.logits = model.logits(hidden_TD.narrow(0, batch.offsets[i - first], length), forward).to(at::kCPU);
      if (options.greedy) score.greedy = likeliest(texts[i], score.logits);
      if (!options.logits) score.logits.reset();
      check_finite(score, i);
      on_score(i, score);
    }
  }
}

}  // namespace evenkeel::scoring
