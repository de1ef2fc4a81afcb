/// \file  Decides which scores a node gives of its own test rows, and withholds means over few rows.
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

/// Reads and checks the client's own test rows. A node gives scores of all rows within evaluate.limit, if at least
/// OwnerLimits::min_test_rows of them are different and the set differs enough from the sets of earlier runs
/// (flower/federation/scored_rows.h). It gives none otherwise.
/// \param files   SHA-256 over the node's files of rows
/// \param memory  folder of the node
/// \throws kData for rows that cannot be read or scored; kConfig when evaluate.limit is below the least number of rows
OwnTestRows own_test_rows(const fed::Experiment& e, int64_t client, const OwnerLimits& limits, const std::string& files,
                          const std::filesystem::path& memory);

/// Records that the rows of `task` are scored now. \throws kConfig when they may not be, as own_test_rows()
void remember_scored_rows(const fed::Experiment& e, const std::string& task, int64_t client, const OwnerLimits& limits,
                          const std::string& files, const std::filesystem::path& memory);

/// Removes the mean log-likelihood if it is over fewer than `least` rows. Rows whose answers exceed the limits of the
/// config do not count. \throws kConfig for a task of likelihood, whose whole score is such a mean
void keep_back_means_of_few(fed::Scored& scored, int64_t least);

}  // namespace evenkeel::flower
