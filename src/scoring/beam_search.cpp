#include "scoring/beam_search.h"

#include <algorithm>
#include <span>

#include "base/plain/error.h"

namespace evenkeel::scoring {
namespace {

/// Returns the indices of the k largest values, largest first, ties to the lowest index. It takes one pass and is meant
/// for small k.
std::vector<int64_t> top_indices(std::span<const float> values, size_t k) {
  std::vector<int64_t> top;
  for (size_t i = 0; i < values.size(); ++i) {
    if (top.size() == k && !(values[i] > values[top.back()])) continue;
    if (top.size() == k) top.pop_back();
    const auto position = std::upper_bound(top.begin(), top.end(), values[i],
                                           [&](float value, int64_t other) { return value > values[other]; });
    top.insert(position, static_cast<int64_t>(i));
  }
  return top;
}

}  // namespace

BeamSearch::BeamSearch(int64_t width, std::vector<int64_t> ends, int64_t max_new_tokens)
    : width_(width), ends_(std::move(ends)), max_new_tokens_(max_new_tokens) {}

bool BeamSearch::ends(int64_t token) const { return std::find(ends_.begin(), ends_.end(), token) != ends_.end(); }

std::vector<BeamSearch::Candidate> BeamSearch::candidates(const at::Tensor& logprobs_WV) const {
  const auto rows = logprobs_WV.contiguous();
  const auto vocab = static_cast<size_t>(rows.size(1));
  const size_t count = std::max<size_t>(2, 1 + ends_.size()) * width_;
  std::vector<Candidate> all;
  for (size_t beam = 0; beam < running_.size(); ++beam) {
    const std::span row(rows.const_data_ptr<float>() + beam * vocab, vocab);
    for (const int64_t token : top_indices(row, count))
      all.push_back({running_[beam].score + row[token], static_cast<int64_t>(beam), token});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& x, const auto& y) { return x.score > y.score; });
  if (all.size() > count) all.resize(count);
  return all;
}

void BeamSearch::end(const Candidate& candidate) {
  Hypothesis hypothesis{running_[candidate.parent].tokens, candidate.score / static_cast<float>(length_)};
  if (!ends(candidate.token)) hypothesis.tokens.push_back(candidate.token);
  const auto position = std::upper_bound(ended_.begin(), ended_.end(), hypothesis.score,
                                         [](float score, const Hypothesis& other) { return score > other.score; });
  ended_.insert(position, std::move(hypothesis));
  if (ended_.size() > width_) ended_.pop_back();
}

bool BeamSearch::improvable() const {
  if (ended_.size() < width_) return true;
  return running_.front().score / static_cast<float>(length_) > ended_.back().score;
}

std::vector<BeamSearch::Continuation> BeamSearch::advance(const at::Tensor& logprobs_WV) {
  EK_CHECK(logprobs_WV.size(0) == static_cast<int64_t>(running_.size()), kInternal, "beam search has ", running_.size(),
           " running beams, got ", logprobs_WV.size(0));
  ++length_;
  std::vector<Continuation> onward;
  std::vector<Hypothesis> next;
  const auto ranked = candidates(logprobs_WV);
  for (size_t rank = 0; rank < ranked.size(); ++rank) {
    const auto& candidate = ranked[rank];
    if (ends(candidate.token) || length_ == max_new_tokens_) {
      if (rank < width_) end(candidate);
    } else if (next.size() < width_) {
      auto tokens = running_[candidate.parent].tokens;
      tokens.push_back(candidate.token);
      next.push_back({std::move(tokens), candidate.score});
      onward.push_back({candidate.parent, candidate.token});
    }
  }
  running_ = std::move(next);
  if (running_.empty() || !improvable()) onward.clear();
  return onward;
}

std::vector<int64_t> BeamSearch::best() const {
  EK_CHECK(!ended_.empty(), kInternal, "beam search has no ended hypothesis");
  return ended_.front().tokens;
}

}  // namespace evenkeel::scoring
