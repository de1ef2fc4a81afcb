/// \file  Reports the state of each study that fills tables of the paper, and the time that its other runs will take.
/// Reads neither weights nor rows: the work of a study is in configs/paper/work.toml, counted by tools/paper_work.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fed/config/experiment_config.h"

namespace evenkeel::study {

/// The state of a study of configs/paper in a folder of runs.
struct PaperStudy {
  std::string name;              ///< "commonsense", or "small/commonsense"
  std::filesystem::path file;    ///< of the study
  std::filesystem::path folder;  ///< below the working folder, where its runs are or will be
  int64_t runs = 0, done = 0, failed = 0;
  bool is_other = false;                 ///< the folder holds another study, none of whose runs is counted
  double seconds_taken = 0;              ///< wall time of the runs that are done
  std::optional<double> seconds_left{};  ///< of the others, one at a time; empty: the work or the speed is not known
  bool by_flops = false;                 ///< seconds_left is computed from FLOPs (fed/run/computed_speed.h)
  std::vector<std::string> missing{};    ///< models and data of the study that are not here, as its config names them
};

/// Returns the speed of products of a run in FLOP/s (fed/run/product_speed.h); nothing if its device is not here.
using SpeedOfRun = std::function<std::optional<double>(const fed::ExperimentConfig&)>;

/// Returns the studies of the paper's tables at full size, then their small counterparts. A study in a folder is that
/// of the paper if it has the paper's base config. Its settings may change where it computes, where its model and data
/// are, and what is recorded or sent. Runs count if their arm and seed are the paper's.
/// \param speed  is asked where no run is done, with the config of the study in the folder or else the shipped one; if
///               that names no device, the device is "auto"
/// \throws kIo, kConfig when a shipped file is missing or damaged; kCheckpoint as read_state()
std::vector<PaperStudy> paper_studies(const SpeedOfRun& speed);

}  // namespace evenkeel::study
