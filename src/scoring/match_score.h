/// \file  Defines the three numbers of a BERTScore comparison.
#pragma once

namespace evenkeel::scoring {

/// Precision, recall and F1, in [-1, 1]. Rescaled values may be outside.
struct MatchScore {
  double precision = 0, recall = 0, f1 = 0;
};

}  // namespace evenkeel::scoring
