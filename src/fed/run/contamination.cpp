#include "fed/run/contamination.h"

#include <algorithm>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "data/file_identity.h"
#include "data/row_files.h"
#include "fed/run/run_folder.h"
#include "fed/store/manifest.h"

namespace evenkeel::fed {
namespace {

using Paths = std::vector<std::string>;

/// Files that a client, set or task trains on or tests with.
struct FilesOf {
  std::string who;
  Paths files;
  const data::FileSet* set = nullptr;  ///< of people's own rows
};

bool is_among(const Paths& files, const std::string& file) {
  return std::find(files.begin(), files.end(), file) != files.end();
}

bool is_of_files(const std::string& task, const data::RowOptions& rows) {
  return data::find_task(task, rows).family == "files";
}

/// Returns the files that a set tests with: its test files, or the training files from which it holds rows out.
Paths tested_of(const data::FileSet& set) {
  return set.tests() ? data::found_files(set.test.empty() ? set.train : set.test) : Paths{};
}

/// Sets of own rows: those of clients or, if there are none, those of [data.files] by task.
struct Sets {
  std::vector<std::pair<std::string, data::FileSet>> all;

  explicit Sets(const data::FilesConfig& config) {
    for (const auto& client : config.clients) all.emplace_back(client.who, client);
    if (!config.clients.empty()) return;
    for (const auto& [task, set] : config.by_task()) all.emplace_back(task, set);
  }
};

std::vector<FilesOf> tested(const RunConfig& config, const Sets& sets) {
  std::vector<FilesOf> all;
  const auto& rows = config.rows();
  bool own = false;
  for (const auto& task : config.tasks_here()) {
    if (!is_of_files(task, rows)) all.push_back({task, data::test_files(data::find_task(task, rows), rows)});
    own = own || is_of_files(task, rows);
  }
  const auto& tasks = config.tasks_here();
  for (const auto& [who, set] : sets.all)
    if (own && (!rows.files.clients.empty() || is_among(tasks, who))) all.push_back({who, tested_of(set), &set});
  return all;
}

/// Returns the training files by set; all others belong to families of tasks.
std::vector<FilesOf> trained(const Experiment& e, const Sets& sets) {
  const auto& shards = e.fabric.shards;
  std::vector<FilesOf> all;
  Paths left = shards.files;
  for (const auto& [who, set] : sets.all) {
    const auto files = data::found_files(set.train);
    FilesOf own{who, {}, &set};
    for (const auto& file : files)
      if (is_among(shards.files, file)) own.files.push_back(file);
    std::erase_if(left, [&](const auto& file) { return is_among(files, file); });
    all.push_back(std::move(own));
  }
  all.push_back({"", left});
  return all;
}

bool hold_out_the_same(const data::FileSet& a, const data::FileSet& b) {
  return a.test.empty() && b.test.empty() && a.train == b.train && a.held_out == b.held_out &&
         a.split_seed == b.split_seed && a.format == b.format;
}

/// Returns true if the overlap is reported elsewhere, or if the rows are known to be disjoint.
bool is_settled(const FilesOf& training, const FilesOf& test, bool of_clients) {
  if (!training.set || !test.set) return false;
  if (training.set == test.set || hold_out_the_same(*training.set, *test.set)) return true;
  return !of_clients && !test.set->test.empty();
}

void warn(const std::string& file, const FilesOf& training, const std::string& test_file, const FilesOf& test) {
  log::warning("[data] ", training.who, training.who.empty() ? "" : ": ", file, " trains, and ", test.who,
               " is tested with it", test_file == file ? "" : concat(" (as ", test_file, ")"),
               ": scores on it say what was learnt by heart");
}

/// Warns of files with equal contents. Task families divide a file that is in both lists under one name by themselves.
/// A node of a federation does not have the test files of the server.
void compare(const FilesOf& training, const FilesOf& test) {
  data::KnownFiles known;
  for (const auto& file : test.files)
    if (path_exists(file)) known.add(file);
  for (const auto& file : training.files) {
    const auto same = known.with_content_of(file);
    if (same && (training.set || *same != file)) warn(file, training, *same, test);
  }
}

/// Returns the manifest's entry of a path.
std::optional<JsonView> entry_of(const JsonView& manifest, const std::string& path) {
  for (const auto& entry : manifest.at("files").items())
    if (entry.at("path").string() == fs::absolute(path).string()) return entry;
  return std::nullopt;
}

/// Returns the training file of the run with the contents of `file`.
std::optional<std::string> trained_as(const JsonView& manifest, const Paths& training, const std::string& file) {
  for (const auto& path : training)
    if (const auto entry = entry_of(manifest, path); entry && has_content(file, *entry)) return path;
  return std::nullopt;
}

Paths training_files_of(const fs::path& folder) {
  const auto file = folder / "partition.json";
  if (!path_exists(file)) return {};
  const auto partition = read_sealed(file);
  return JsonView(partition, file.string(), kCheckpoint).at("files").strings();
}

}  // namespace

void warn_of_contamination(const Experiment& e) {
  const auto& config = e.fabric.context.config;
  const Sets sets(config.rows().files);
  const auto tests = tested(config, sets);
  for (const auto& training : trained(e, sets))
    for (const auto& test : tests)
      if (!is_settled(training, test, config->clients.own_rows())) compare(training, test);
}

void warn_of_training_on(const RunConfig& config, const fs::path& folder) {
  const auto training = training_files_of(folder);
  if (training.empty()) return;
  const auto document = read_manifest(folder);
  const JsonView manifest(document, (folder / kManifestFile).string(), kCheckpoint);
  const Sets sets(config.rows().files);
  for (const auto& test : tested(config, sets)) {
    const bool held_out = test.set != nullptr && test.set->test.empty();
    for (const auto& file : held_out ? Paths{} : test.files)
      if (const auto same = trained_as(manifest, training, file); same && (test.set || *same != file))
        log::warning("[evaluate] ", test.who, ": the run was trained on ", file,
                     *same == file ? "" : concat(" (as ", *same, ")"), ": scores on it say what was learnt by heart");
  }
}

}  // namespace evenkeel::fed
