// Tasks from user files: each set of data.files is a task. Held-out test rows are drawn from the rows of all its
// training files together.
#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/plain/error.h"
#include "base/random/random.h"
#include "data/file_identity.h"
#include "data/tasks/family.h"

namespace evenkeel::data {
namespace {

TaskInfo file_task(const std::string& name, const FileSet& set, bool tests) {
  return {.name = name,
          .file = "",
          .answers = set.options,
          .source = "rows of your own, JSON or JSON lines (docs/your-data.md)",
          .scoring = set.score,
          .tests = tests};
}

std::vector<TaskInfo> file_tasks(const RowOptions& from) {
  std::vector<TaskInfo> all;
  for (const auto& [name, set] : from.files.by_task()) all.push_back(file_task(name, set, set.tests()));
  if (all.empty()) all.push_back(file_task("files", {}, /*tests=*/true));  // for listings, when no files are named yet
  return all;
}

FileSet set_of(const TaskInfo& task, const RowOptions& from) {
  const auto sets = from.files.by_task();
  const auto found = sets.find(task.name);
  EK_CHECK(found != sets.end(), kConfig, "task ", task.name,
           " has no files: say data.files.train, data.files.test or --data");
  return found->second;
}

/// What rows of files are for.
enum class RowUse { kTraining, kBoth, kTesting };

using FileNames = std::set<std::string>;

/// Reads files of a set. Only training rows are grouped by their label. \param uncounted  as in FileRows
TaskRows rows_of(std::span<const std::string> patterns, const std::string& name, const FileSet& set, RowUse use,
                 const RowOptions& from, const FileNames& uncounted = {}) {
  return file_rows({.patterns = {patterns.begin(), patterns.end()},
                    .format = set.format,
                    .strict = set.strict,
                    .ignore = set.ignore,
                    .label = name,
                    .label_field = set.label,
                    .labelled = use != RowUse::kTesting,
                    .choices = set.score == Scoring::kChoice,
                    .options = set.options,
                    .conversations = from.form == PromptTemplate::kChat,
                    .texts = from.form == PromptTemplate::kPlain,
                    .compared = use != RowUse::kTraining && set.score != Scoring::kNll,
                    .uncounted = uncounted});
}

/// Groups rows that ask the same question, in file order.
std::vector<std::vector<size_t>> groups_of(std::span<const Row> rows) {
  std::vector<std::vector<size_t>> groups;
  std::map<std::vector<std::string_view>, size_t> known;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [at, is_new] = known.try_emplace(comparable_question(rows[i]), groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].push_back(i);
  }
  return groups;
}

/// Decides in random order which groups are held out. A group is held out if it still fits into the share, which is at
/// least one row.
std::vector<bool> held_out_of(std::span<const Row> rows, const FileSet& set) {
  auto groups = groups_of(rows);
  RandomStream(static_cast<uint64_t>(set.split_seed), "files-held-out").shuffle(std::span(groups));
  std::vector<bool> held(rows.size(), false);
  const double share = set.held_out * static_cast<double>(rows.size()) + 0.5;
  size_t capacity = std::max<size_t>(1, static_cast<size_t>(share));
  for (const auto& group : groups) {
    if (group.size() > capacity) continue;
    capacity -= group.size();
    for (const size_t i : group) held[i] = true;
  }
  return held;
}

/// Returns true if a share of the training rows of a set is held out for testing.
bool holds_out(const FileSet& set) { return set.test.empty() && set.held_out > 0; }

/// Removes the rows of some files.
void drop(const FileNames& files, TaskRows& all) {
  std::erase_if(all.rows, [&](const Row& row) { return files.contains(*row.place.file); });
  std::erase_if(all.held_out, [&](const RowPlace& place) { return files.contains(*place.file); });
}

/// Returns the held-out rows of a set, or all its other rows. \param again  files that an earlier set names: their rows
/// take part in the choice of held-out rows, and are neither returned nor counted
TaskRows side_of(const std::string& name, const FileSet& set, bool held_out, const RowOptions& from,
                 const FileNames& again = {}) {
  auto all = rows_of(set.train, name, set, holds_out(set) ? RowUse::kBoth : RowUse::kTraining, from, again);
  if (!holds_out(set)) return all;
  const auto held = held_out_of(all.rows, set);
  for (size_t i = 0; !held_out && i < held.size(); ++i)
    if (held[i]) all.held_out.push_back(all.rows[i].place);
  size_t count = 0;
  for (size_t i = 0; i < all.rows.size(); ++i)
    if (held[i] == held_out) std::swap(all.rows[count++], all.rows[i]);
  EK_CHECK(count > 0, kData, name, ": of ", all.rows.size(), " rows, data.files.held_out = ", set.held_out,
           held_out ? " leaves none to test with" : " leaves none to train on", "; rows that ask the same go together");
  all.rows.resize(count);
  drop(again, all);
  all.read +=
      concat(", ", all.rows.size(), held_out ? " of them held out" : " of them to train on, the others held out");
  return all;
}

/// Returns the test files of all sets and clients. Rows of these files must not be training rows.
KnownFiles test_files_of_all(const FilesConfig& config) {
  std::vector<std::string> patterns = config.test;
  const auto add = [&](const FileSet& set) { patterns.insert(patterns.end(), set.test.begin(), set.test.end()); };
  for (const auto& [name, set] : config.sets) add(set);
  for (const auto& client : config.clients) add(client);
  KnownFiles all;
  for (const auto& file : found_files(patterns)) all.add(file);
  return all;
}

void note_what_is_on_both_sides(const RowOptions& from, TaskRows& rows) {
  auto tests = test_files_of_all(from.files);
  for (const auto& file : rows.files)
    if (const auto test = tests.with_content_of(file))
      append({.rows = {},
              .note = concat(file, " trains and tests", *test == file ? "" : concat(" (as ", *test, ")"),
                             ": scores on it say what was learnt by heart")},
             rows);
}

TaskRows training_side(const std::string& name, const FileSet& set, const RowOptions& from,
                       const FileNames& again = {}) {
  auto rows = side_of(name, set, /*held_out=*/false, from, again);
  note_what_is_on_both_sides(from, rows);
  return rows;
}

TaskRows test_side(const std::string& name, const FileSet& set, const RowOptions& from) {
  return set.test.empty() ? side_of(name, set, /*held_out=*/true, from)
                          : rows_of(set.test, name, set, RowUse::kTesting, from);
}

/// Training rows of several sets. A file that several sets name trains once, with the first of them.
class RowsOfSets {
 public:
  /// Adds the rows of a set. A file of an earlier set is read only if the choice of held-out rows depends on it.
  void add(const std::string& name, FileSet set, const RowOptions& from) {
    set.train = found_files(set.train);
    const auto again = files_of_earlier_sets(name, set.train);
    if (again.size() == set.train.size()) return;
    if (!holds_out(set)) std::erase_if(set.train, [&](const std::string& file) { return again.contains(file); });
    append(training_side(name, set, from, again), all);
  }

  TaskRows all{};

 private:
  /// Returns those of a set's files that an earlier set names. Notes them, and copies of other sets' files.
  FileNames files_of_earlier_sets(const std::string& name, std::span<const std::string> files) {
    auto earlier = known_;
    FileNames again;
    for (const auto& file : files)
      if (!known_.add(file)) {
        again.insert(file);
        note(concat(file, " is in several sets: its rows train once, with the first of them; format, ignore and label ",
                    "of ", name, " are not used for them"));
      } else if (const auto same = earlier.with_content_of(file)) {
        note(concat(file, " is a copy of ", *same, ": its rows count twice"));
      }
    return again;
  }

  void note(std::string text) { append({.rows = {}, .note = std::move(text)}, all); }

  KnownFiles known_;
};

/// Concatenates the rows of all clients. Errors name the client.
template <typename Side>
TaskRows of_clients(const RowOptions& from, const Side& side) {
  TaskRows all;
  for (const auto& client : from.files.clients) {
    try {
      append(side(client), all);
    } catch (const Error& error) {
      throw error.with_context(client.who);
    }
  }
  return all;
}

TaskRows file_training_rows(const RowOptions& from) {
  if (!from.files.clients.empty())
    return of_clients(from, [&](const FileSet& set) { return training_side("files", set, from); });
  RowsOfSets sets;
  for (const auto& [name, set] : from.files.by_task())
    if (!set.train.empty()) sets.add(name, set, from);
  EK_CHECK(!sets.all.rows.empty(), kConfig, "data.files names no files to train on: say data.files.train");
  return std::move(sets.all);
}

TaskRows file_test_rows(const TaskInfo& task, const RowOptions& from) {
  const auto set = set_of(task, from);
  EK_CHECK(set.tests(), kConfig, "task ", task.name,
           " has no rows to test with: say test or held_out of its data.files");
  if (from.files.clients.empty()) return test_side(task.name, set, from);
  return of_clients(from, [&](const FileSet& own) { return own.tests() ? test_side("files", own, from) : TaskRows{}; });
}

std::vector<std::string> file_test_files(const TaskInfo& task, const RowOptions& from) {
  const auto set = set_of(task, from);
  auto files = set.test;
  if (files.empty() || !from.files.clients.empty()) files.insert(files.end(), set.train.begin(), set.train.end());
  return found_files(files);
}

}  // namespace

TaskFamily files() {
  return {.name = "files",
          .tasks = file_tasks,
          .training_rows = file_training_rows,
          .test_rows = file_test_rows,
          .test_files = file_test_files};
}

}  // namespace evenkeel::data
