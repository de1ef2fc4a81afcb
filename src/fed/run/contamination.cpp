#include "fed/run/contamination.h"

#include <algorithm>
#include <map>
#include <set>

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

/// Returns true if both sets read the same rows of their training files. Strict sets read all rows. Others leave out
/// rows that cannot be scored or grouped as the set says.
bool read_the_same(const data::FileSet& a, const data::FileSet& b) {
  const auto is_text = [](data::Scoring score) {
    return score == data::Scoring::kF1 || score == data::Scoring::kExact;
  };
  if (a.train != b.train || a.format != b.format || a.ignore != b.ignore) return false;
  if (a.strict && b.strict) return true;
  return (a.score == b.score || (is_text(a.score) && is_text(b.score))) && a.options == b.options && a.label == b.label;
}

bool hold_out_the_same(const data::FileSet& a, const data::FileSet& b) {
  return a.test.empty() && b.test.empty() && a.held_out == b.held_out && a.split_seed == b.split_seed &&
         read_the_same(a, b);
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

/// Finds the tests that have a file as long as one of a training set's. Files of other lengths have other contents.
class TestsByLength {
 public:
  explicit TestsByLength(std::span<const FilesOf> tests) {
    for (size_t i = 0; i < tests.size(); ++i)
      for (const auto& file : tests[i].files)
        if (path_exists(file)) tests_.emplace(file_size(file), i);
  }
  /// \return indices of tests, ascending
  std::set<size_t> comparable_to(const FilesOf& training) const {
    std::set<size_t> found;
    if (tests_.empty()) return found;
    for (const auto& file : training.files) {
      const auto [first, last] = tests_.equal_range(file_size(file));
      for (auto test = first; test != last; ++test) found.insert(test->second);
    }
    return found;
  }

 private:
  std::multimap<uint64_t, size_t> tests_;
};

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

/// Training files of a run, with their entries in its manifest.
class TrainedFiles {
 public:
  TrainedFiles(const JsonView& manifest, const Paths& training) {
    std::map<std::string, JsonView> entries;
    for (const auto& entry : manifest.at("files").items()) entries.emplace(entry.at("path").string(), entry);
    for (const auto& path : training)
      if (const auto entry = entries.find(fs::absolute(path).string()); entry != entries.end())
        by_length_.emplace(entry->second.at("bytes").integer(0), std::pair(path, entry->second));
  }
  /// Returns the training file with the contents of `file`.
  std::optional<std::string> same_as(const std::string& file) const {
    const auto [first, last] = by_length_.equal_range(file_size(file));
    for (auto trained = first; trained != last; ++trained)
      if (has_content(file, trained->second.second)) return trained->second.first;
    return std::nullopt;
  }

 private:
  std::multimap<uint64_t, std::pair<std::string, JsonView>> by_length_;
};

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
  const TestsByLength by_length(tests);
  for (const auto& training : trained(e, sets))
    for (const size_t test : by_length.comparable_to(training))
      if (!is_settled(training, tests[test], config->clients.own_rows())) compare(training, tests[test]);
}

void warn_of_training_on(const RunConfig& config, const fs::path& folder) {
  const auto training = training_files_of(folder);
  if (training.empty()) return;
  const auto document = read_manifest(folder);
  const JsonView manifest(document, (folder / kManifestFile).string(), kCheckpoint);
  const TrainedFiles trained(manifest, training);
  const Sets sets(config.rows().files);
  for (const auto& test : tested(config, sets)) {
    const bool held_out = test.set != nullptr && test.set->test.empty();
    for (const auto& file : held_out ? Paths{} : test.files)
      if (const auto same = trained.same_as(file); same && (test.set || *same != file))
        log::warning("[evaluate] ", test.who, ": the run was trained on ", file,
                     *same == file ? "" : concat(" (as ", *same, ")"), ": scores on it say what was learnt by heart");
  }
}

}  // namespace evenkeel::fed
