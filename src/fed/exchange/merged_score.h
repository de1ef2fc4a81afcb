/// \file  The score of rows that several clients keep, merged from each client's score of its own rows.
#pragma once

#include <span>

#include "fed/exchange/message.h"

namespace evenkeel {

/// The score of all rows together. Shares of rows are merged as counts of rows, so they are exactly those of one
/// evaluation over all rows; means (F1, BERTScore, log-likelihood) up to rounding. The majority is that of
/// Scored::right_answers. Questions are added up: one that two clients ask counts twice. Seconds are added up too.
/// \param parts  of the same task and evaluation point, one or more, without predictions
/// \throws kData for parts that measure different things.
Scored merged(std::span<const Scored> parts);

/// Whether a stranger's score can be the answer to `asked`: of that task and point, and one of `rows` rows, with counts
/// that add up, shares within 0 and 1, finite means. \param asked  a Score \throws kData saying what cannot be.
void check_score(const Scored& scored, const Task& asked, AnswerKind kind, int64_t rows);

}  // namespace evenkeel
