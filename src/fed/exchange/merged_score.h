/// \file  Merges scores that several clients made on their own rows into one score of all rows.
#pragma once

#include <span>

#include "fed/exchange/message.h"

namespace evenkeel::fed {

/// Merges scores into the score of all rows together. Shares of rows, such as accuracy, are merged as counts, so they
/// equal the shares of a single evaluation of all rows. Means (F1, log-likelihood) are equal up to rounding. A mean
/// log-likelihood is weighted by TaskScore::likelihood_rows. The majority rate counts, in each part, the most frequent
/// answer of the part's own rows, because no part reports which answer that is. BERTScore is left out.
/// Scores of single rows are concatenated in the order of the parts; nullopt if a part lacks them. Questions and
/// seconds are added up; a question that two clients have counts twice.
/// \param parts  one or more scores of the same task and evaluation point; predictions are ignored
/// \throws kData when the parts differ in task, kind, budget, rank evaluation mode or ServedBy
Scored merged(std::span<const Scored> parts);

/// Checks that a score from an untrusted client is a possible answer to `asked`. The score must be of the same task and
/// evaluation point, and of `rows` rows. Its counts must be consistent, its shares in [0, 1], and its measures and
/// seconds in the bounds of fed/exchange/reported_numbers.h.
/// \param asked  a task that holds a Score
/// \throws kData naming the value that is not possible
void check_score(const Scored& scored, const Task& asked, scoring::AnswerKind kind, int64_t rows);

}  // namespace evenkeel::fed
