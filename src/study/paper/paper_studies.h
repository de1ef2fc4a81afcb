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
  std::filesystem::path file;    ///< the shipped study file
  std::filesystem::path folder;  ///< below the working folder, where its runs are or will be
  int64_t runs = 0, done = 0, failed = 0;
  bool is_other = false;                 ///< the folder holds another study; none of its runs is counted
  double seconds_taken = 0;              ///< wall time of the runs that are done
  std::optional<double> seconds_left{};  ///< of the other runs, one at a time; empty: work or speed is unknown
  bool by_flops = false;                 ///< seconds_left is computed from FLOPs (fed/run/computed_speed.h)
  std::vector<std::string> missing{};    ///< models and data of the study that are not here, as its config names them
};

/// Returns the speed of a run's matrix products in FLOP/s (fed/run/product_speed.h); nothing if this machine lacks the
/// run's device.
using SpeedOfRun = std::function<std::optional<double>(const fed::ExperimentConfig&)>;

/// Returns the studies of the paper's tables at full size, then their small counterparts. The runs in a folder are
/// counted if its study has the base config of the shipped study. The config may differ in names, folders, device,
/// kernels, compute dtype, threads, batching, recorded items, train.transport_dtype and lora.router_lora. A run is
/// counted if its arm and seed are in the shipped study.
/// \param speed  gives the time of a study that has no finished run. It is called with the config of the study in the
///               folder, or with the shipped one if there is none. A config without a device is given device = "auto"
/// \throws kIo, kConfig when a shipped file is missing or damaged; kCheckpoint as read_state()
std::vector<PaperStudy> paper_studies(const SpeedOfRun& speed);

}  // namespace evenkeel::study
