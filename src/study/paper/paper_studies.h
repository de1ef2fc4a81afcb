/// \file  Reports the state of each study that fills tables of the paper, and the time that its other runs will take.
/// Reads neither weights nor rows: the work of a study is in configs/paper/work.toml, counted by tools/paper_work.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace evenkeel::study {

/// The state of a study of configs/paper in a folder of runs.
struct PaperStudy {
  std::string name;              ///< "commonsense", or "small/commonsense"
  std::filesystem::path file;    ///< of the study
  std::filesystem::path folder;  ///< below the working folder, where its runs are or will be
  int64_t runs = 0, done = 0, failed = 0;
  double seconds_taken = 0;              ///< wall time of the runs that are done
  std::optional<double> seconds_left{};  ///< of the others, one at a time; empty: the work is not known
  bool is_least = false;                 ///< seconds_left is a lower bound, from FLOPs
  std::vector<std::string> missing{};    ///< models and data of the study that are not here, as its config names them
};

/// Returns the studies of the paper's tables at full size, then their small counterparts.
/// \param product_speed  of this machine in FLOP/s (fed/run/computed_speed.h)
/// \throws kIo, kConfig when a shipped file is missing or damaged; kCheckpoint as read_state()
std::vector<PaperStudy> paper_studies(double product_speed);

}  // namespace evenkeel::study
