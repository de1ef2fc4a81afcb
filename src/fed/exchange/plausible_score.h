/// \file  Checks that the numbers of a score from an untrusted client are possible for some model and some rows. A
/// false score within these bounds cannot be told from a true one.
#pragma once

#include "fed/exchange/message.h"

namespace evenkeel::fed {

/// Checks a score by itself: log-likelihoods are at most 0, shares of rows stand for whole numbers of rows, correct
/// answers are readable, the headline accuracy is the accuracy of unchanged or of lower-cased output, and means equal
/// the means of the single rows if these are given. Rounding of sums of float64 is allowed for.
/// \throws kData naming the value that is not possible
void check_plausible(const Scored& scored);

}  // namespace evenkeel::fed
