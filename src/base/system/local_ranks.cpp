#include "base/system/local_ranks.h"

#include <cstdlib>
#include <initializer_list>
#include <optional>

#include "base/plain/text.h"

namespace evenkeel {
namespace {

constexpr int64_t kMaxRanks = 1024;

/// Returns the number in the first of these variables that is set; nothing if it is no number in its range.
std::optional<int64_t> number_in(std::initializer_list<const char*> names, int64_t least) {
  for (const char* name : names)
    if (const char* text = std::getenv(name); text != nullptr) {
      const auto value = parse_number<int64_t>(text);
      return value && *value >= least && *value <= kMaxRanks ? value : std::nullopt;
    }
  return std::nullopt;
}

}  // namespace

int64_t local_rank() {
  return number_in({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}, 0).value_or(0);
}

int64_t local_ranks() {
  return number_in({"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"}, 1)
      .value_or(1);
}

int64_t ranks_sharing(std::string_view device, int64_t ranks) { return device.starts_with("cuda:") ? ranks : 1; }

}  // namespace evenkeel
