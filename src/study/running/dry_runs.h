/// \file  Makes the experiments of a study's runs without weights, to check the runs and to estimate their needs.
#pragma once

#include <cstddef>
#include <optional>

#include "fed/run/make_experiment.h"
#include "study/running/run_study.h"

namespace evenkeel::study {

/// Makes experiments. The rows of the first one are kept, because all arms of a seed read the same rows, and it takes
/// seconds to tokenise them. For one thread.
class DryRuns {
 public:
  struct Made {
    fed::Experiment experiment;
    bool has_known_rows = false;  ///< training and test rows are the first experiment's
  };

  /// \param task  borrowed; it must outlive this object
  explicit DryRuns(const StudyTask& task) : task_(&task) {}
  /// Makes the experiment of task.study.runs[run], without weights. \throws as make_experiment()
  Made make(size_t run);

 private:
  const StudyTask* task_;
  std::optional<fed::RunConfig> first_;
  fed::Shards rows_;
};

/// Returns the config of a run with its output folder and the folder of the int8 copy of its base.
fed::RunConfig config_of_run(const StudyTask& task, size_t run);

}  // namespace evenkeel::study
