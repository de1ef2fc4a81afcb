/// \file  Reports the state of each study that fills tables of the paper, and the time that its remaining runs take. It
/// reads neither weights nor rows: the work of each study is in configs/paper/work.toml, which tools/paper_work.py
/// counts.
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

/// Returns the studies of the paper's tables at full size, then their small counterparts. The runs in a folder are
/// counted if its study has the base config of the shipped study. The config may differ in the device, in the folders
/// of model and data, and in what is recorded or sent. A run is counted if its arm and seed are in the shipped study.
/// \param speed  gives the time of a study that has no finished run. It is called with the config of the study in the
///               folder, or with the shipped one if there is none. A config without a device is given device = "auto"
/// \throws kIo, kConfig when a shipped file is missing or damaged; kCheckpoint as read_state()
std::vector<PaperStudy> paper_studies(const SpeedOfRun& speed);

}  // namespace evenkeel::study
