/// \file  The three numbers of a BERTScore comparison.
#pragma once

namespace evenkeel {

/// Similarities in [-1, 1]; rescaled ones may be outside.
struct MatchScore {
  double precision = 0, recall = 0, f1 = 0;
};

}  // namespace evenkeel
