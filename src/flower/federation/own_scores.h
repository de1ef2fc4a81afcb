/// \file  Decides which scores a node gives of its own test rows, and keeps back what would tell about a few rows.
#pragma once

#include <cstdint>
#include <string>

#include "fed/run/experiment.h"
#include "flower/federation/owner_limits.h"

namespace evenkeel::flower {

/// A node's own test rows in a run.
struct OwnTestRows {
  int64_t count = 0;        ///< number of rows, without the limit of the run
  std::string no_scores{};  ///< why the node gives no scores of them; empty if it does
};

/// Reads and checks the client's own test rows. A node gives scores of all rows within evaluate.limit, if these are at
/// least OwnerLimits::min_test_rows different ones that also differ enough from those of earlier runs
/// (flower/federation/scored_rows.h). It gives none otherwise.
/// \param files   SHA-256 over the node's files of rows
/// \param memory  folder of the node
/// \throws kData for rows that cannot be read or scored; kConfig when evaluate.limit is below the least number of rows
OwnTestRows own_test_rows(const fed::Experiment& e, int64_t client, const OwnerLimits& limits, const std::string& files,
                          const std::filesystem::path& memory);

/// Records that the rows of `task` are scored now. \throws kConfig when they may not be, as own_test_rows()
void remember_scored_rows(const fed::Experiment& e, const std::string& task, int64_t client, const OwnerLimits& limits,
                          const std::string& files, const std::filesystem::path& memory);

/// Removes a mean log-likelihood that is of fewer than `least` rows: the rows without an answer within the limits of
/// the config count as well as none. \throws kConfig for a perplexity of so few rows, which is the whole score
void keep_back_means_of_few(fed::Scored& scored, int64_t least);

}  // namespace evenkeel::flower
