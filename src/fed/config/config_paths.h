/// \file  Lists the paths of a run's config. Everything that expands, settles or compares paths goes through this list.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// A key of a config that holds a path, or a list of paths and patterns.
struct PathKey {
  std::string key;                            ///< full key, as "data.files.train" or "clients.client[0].data"
  std::string who;                            ///< start of error messages: the key, or the client that it belongs to
  std::string* path = nullptr;                ///< null for a list
  std::vector<std::string>* paths = nullptr;  ///< null for a single path
};

/// Lists the keys with paths of a config, in the order of its text. The lists of clients whose rows are at their nodes
/// (ClientsSection::rows_elsewhere()) hold no paths and are left out. The result borrows `config`.
std::vector<PathKey> path_keys(ExperimentConfig& config);

/// Replaces $EVENKEEL_DATA and addresses of the hub's data sets in all paths except model.path and output.dir.
/// \throws kIo, kConfig naming the client that the key belongs to, if any
void expand_paths(ExperimentConfig& config);

using KeyFilter = std::function<bool(std::string_view key)>;

/// Replaces every path except output.dir by the absolute path of the file or folder that it names now. Patterns become
/// the files that they match, and model.path becomes settled_model_path(). REQUIRES expanded paths
/// \param is_wanted  selects the keys; empty: all
/// \throws kIo, kData, kConfig naming the key or the client of a file that is not there
void find_paths(ExperimentConfig& config, const KeyFilter& is_wanted = {});

/// Returns `asked` after expand_paths() and find_paths(). The run then reads the same files from every working folder,
/// after files were added, and after a branch of the hub has moved. settle() does not do this, because some of its
/// callers must not look for files: a resume looks only for files that are asked for anew, a node lacks the server's
/// files, and the runs of a study read the files of its plan.
/// \throws kIo, kData, kConfig for files that are missing
ExperimentConfig with_inputs(ExperimentConfig asked);

/// Copies to `config` the paths of `from` under the keys for which `is_same` returns true.
void take_paths(ExperimentConfig& config, ExperimentConfig from, const KeyFilter& is_same);

}  // namespace evenkeel::fed
