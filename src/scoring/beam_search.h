/// \file  Implements the bookkeeping of a beam search, independent of the model. The result equals transformers'
/// generate(num_beams=width, do_sample=False, length_penalty=1.0, early_stopping=False).
/// Each step considers max(2, 1 + number of end tokens) * width candidates. A candidate that ends is kept if it is
/// among the first `width`. Its score is divided by the number of new tokens, eos included. The search ends at
/// max_new_tokens. It also ends when `width` beams have ended and the best running beam, scored at its present length,
/// is not better than the worst ended beam.
/// Dimension names: W running beams, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace evenkeel::scoring {

/// State of one beam search.
class BeamSearch {
 public:
  /// A beam that continues: the index of its parent among the beams of the last step, and its new token.
  struct Continuation {
    int64_t parent, token;
  };

  /// Creates a search.
  /// \param ends  distinct tokens that end a beam; empty: only max_new_tokens ends it
  BeamSearch(int64_t width, std::vector<int64_t> ends, int64_t max_new_tokens);

  /// Takes one step.
  /// \param logprobs_WV  [W, V] float32 on the CPU, log-probabilities of the running beams in order, finite or -inf; W
  /// is 1 in the first step
  /// \return the beams that continue, best first, ties to the earlier beam and lower id; empty when the search is done
  std::vector<Continuation> advance(const at::Tensor& logprobs_WV);

  /// Returns the tokens of the best ended hypothesis, without eos. REQUIRES that the search is done.
  std::vector<int64_t> best() const;

 private:
  struct Hypothesis {
    std::vector<int64_t> tokens;
    float score = 0;  ///< sum of log-probabilities; divided by the length when the hypothesis has ended
  };
  struct Candidate {
    float score;
    int64_t parent, token;
  };
  std::vector<Candidate> candidates(const at::Tensor& logprobs_WV) const;
  void end(const Candidate& candidate);
  bool improvable() const;

  size_t width_;
  bool ends(int64_t token) const;

  std::vector<int64_t> ends_;
  int64_t max_new_tokens_;
  int64_t length_ = 0;  // number of new tokens of the running beams
  std::vector<Hypothesis> running_{1}, ended_;
};

}  // namespace evenkeel::scoring
