/// \file  The bookkeeping of one beam search, apart from the model. Equal to transformers' generate(num_beams = width,
/// do_sample=False, length_penalty=1.0, early_stopping=False): max(2, 1 + ends) * width candidates a step; of the first
/// `width` those that end are kept, their score divided by the number of new tokens, eos included; it ends when
/// the best running beam, at its present length, is no better than the worst of `width` ended ones, or at
/// max_new_tokens. Dimension names: W running beams, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace evenkeel {

class BeamSearch {
 public:
  /// A beam that runs on: row of the last step it continues, and its new token.
  struct Continuation {
    int64_t parent, token;
  };

  /// \param ends  tokens that end a beam, each once; none: its length does
  BeamSearch(int64_t width, std::vector<int64_t> ends, int64_t max_new_tokens);

  /// One step. \param logprobs [W, V] float32 of the running beams, in order; W is 1 in the first step.
  /// \return the beams that run on, best first, ties to the earlier beam and lower id; empty when the search is done.
  std::vector<Continuation> advance(const at::Tensor& logprobs_WV);

  /// Tokens of the best ended hypothesis, eos excluded. REQUIRES the search is done.
  std::vector<int64_t> best() const;

 private:
  struct Hypothesis {
    std::vector<int64_t> tokens;
    float score = 0;  ///< sum of log-probabilities; divided by the length once ended
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
  int64_t length_ = 0;  // new tokens of the running beams
  std::vector<Hypothesis> running_{1}, ended_;
};

}  // namespace evenkeel
