#include "study/running/run_study.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "base/format/command_line.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "base/system/device.h"
#include "base/system/machine.h"
#include "base/system/process.h"
#include "methods/described_method.h"
#include "study/definition/equal_functions.h"
#include "study/definition/run_claims.h"
#include "study/running/run_queue.h"

namespace evenkeel::study {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};

fs::path folder_of(const StudyCommand& command, const StudyFile& file) {
  return command.out.empty() ? fs::path("runs") / file.study.name : command.out;
}

void check_only(const StudyCommand& command, const StudyState& state) {
  std::set<std::string> known;
  for (const auto& run : state.runs) known.insert(run.label());
  for (const auto& label : command.only)
    EK_CHECK(known.contains(label), kConfig, "--only is ", shown(label), ", allowed: ARM:SEED of the study, as ",
             *known.begin());
}

std::vector<size_t> chosen_runs(const StudyCommand& command, const StudyState& state) {
  check_only(command, state);
  std::vector<size_t> chosen;
  int64_t named = 0;
  for (size_t i = 0; i < state.runs.size(); ++i) {
    if (!command.only.empty() && !is_named(command, state.runs[i])) continue;
    if (named++ % command.shard.count == command.shard.index - 1) chosen.push_back(i);
  }
  return chosen;
}

/// Checks that the base models of the arms are where the study has them.
void check_bases(const Study& study) {
  for (const auto& arm : study.arms) {
    const auto base = models::find_model_folder(arm.resolved.model.path);
    EK_CHECK(is_folder(base), kIo, base.string(), ", the base model of arm ", arm.name,
             ", is not there: put it back, or name the folder that it was moved to: --base FOLDER");
  }
}

Study opened_study(const StudyCommand& command, const StudyRequest& request, const fs::path& folder) {
  if (!holds_study(folder)) {
    EK_CHECK(command.base.empty(), kConfig, "--base is ", command.base, ", but ", folder.string(),
             " holds no study yet, whose base could have moved");
    check_new(folder);
    const auto whole = with_items(request);
    const auto pinned = pinned_settings(whole, command.jobs);
    auto arms = plan_arms(whole, pinned);
    auto runs = plan_runs(arms, whole.file.study.seeds);
    auto state = new_state(whole, pinned, arms, runs);
    return {folder, std::move(state), std::move(arms), std::move(runs)};
  }
  EK_CHECK(command.resume, kIo, folder.string(),
           ": holds a study already: resume it with --resume, or choose another --out");
  auto study = open_study(folder);
  if (!command.base.empty()) study = with_base(study, command.base);
  check_bases(study);
  return extended(request, study);
}

void warn_of_threads(const Study& study, int64_t at_once, int64_t jobs) {
  const auto& config = study.runs.front().config;
  const int64_t threads = at_once * config->threads * config->clients.parallel, processors = machine::processors();
  if (at_once > 1 && threads > processors)
    log::warning("[study] --jobs ", jobs, ": ", at_once, " runs at once x threads ",
                 config->threads * config->clients.parallel, " = ", threads, " threads, this machine has ", processors,
                 " processors; threads are pinned since the study was made");
}

/// Creates the study, or opens the one that another process has created in the meantime.
Study created_study(const Study& planned, const StudyRequest& request) {
  const bool is_first = create_study(planned, request);
  const auto study = open_study(planned.folder);
  return extended(is_first ? with_added(request, study.state) : request, study);
}

std::vector<size_t> runs_of(const StudyState& state, std::span<const std::string> labels) {
  const std::set<std::string> wanted(labels.begin(), labels.end());
  std::vector<size_t> found;
  for (size_t i = 0; i < state.runs.size(); ++i)
    if (wanted.contains(state.runs[i].label())) found.push_back(i);
  return found;
}

/// Updates the state: runs that another process has finished, and done runs whose folder is missing and that are run
/// again.
void refresh(const StudyCommand& command, StudyTask& task) {
  const auto now = update_state(task.study.folder, [&](StudyState& state) {
    for (auto& run : state.runs)
      if (run.state == RunState::kDone && is_named(command, run) && !path_exists(task.study.folder / run.folder)) {
        run.state = RunState::kPlanned;
        run.seconds.reset();
      }
  });
  auto& known = task.study.state.runs;  // further runs may have been added after them
  std::copy_n(now.runs.begin(), known.size(), known.begin());
}

}  // namespace

Shard Shard::read(const std::string& text) {
  const auto slash = text.find('/');
  const auto index = parse_number<int64_t>(std::string_view(text).substr(0, slash));
  const auto count =
      slash == text.npos ? std::nullopt : parse_number<int64_t>(std::string_view(text).substr(slash + 1));
  EK_CHECK(index && count && *index >= 1 && *index <= *count && *count <= kMostRuns, kConfig, "--shard is ",
           shown(text), ", allowed: i/n with i from 1 to n, as 2/4");
  return {*index, *count};
}

bool is_named(const StudyCommand& command, const StudyRun& run) {
  return std::find(command.only.begin(), command.only.end(), run.label()) != command.only.end();
}

std::vector<std::string> StudyTask::labels() const {
  std::vector<std::string> all;
  for (const size_t run : mine) all.push_back(study.state.runs[run].label());
  return all;
}

StudyTask plan_study(const StudyCommand& command) {
  StudyTask task{.request = {StudyFile::load(command.file), command.settings},
                 .study = {},
                 .mine = {},
                 .slots = {"cpu", command.jobs, 0}};
  const auto folder = folder_of(command, task.request.file);
  task.is_new = !holds_study(folder);
  task.study = opened_study(command, task.request, folder);
  check_endpoint(task.study.state.endpoint, task.study.runs);
  check_equal_functions(task.request.file.study, task.study.runs);
  task.mine = chosen_runs(command, task.study.state);
  task.slots = job_slots(task.study.runs.front().config->model.device, command.jobs);
  return task;
}

void save_study(StudyTask& task) {
  const auto labels = task.labels();
  if (task.is_new) task.study = created_study(task.study, task.request);
  task.study = save_extension(task.request, std::move(task.study));
  task.mine = runs_of(task.study.state, labels);
}

std::vector<std::string> resume_words(const StudyCommand& command, const fs::path& folder) {
  std::vector<std::string> words{"study", command.file.string(), "--out", folder.string()};
  if (command.jobs > 1) words.insert(words.end(), {"--jobs", std::to_string(command.jobs)});
  if (command.shard.count > 1)
    words.insert(words.end(), {"--shard", concat(command.shard.index, "/", command.shard.count)});
  for (const auto& label : command.only) words.insert(words.end(), {"--only", label});
  if (!command.base.empty()) words.insert(words.end(), {"--base", command.base});
  for (const auto& [name, source] : command.methods) {  // `source` may be a socket that ends with this command
    const auto& own = *methods::find_method(name).described;
    const auto flag = methods::method_flag(own.file, own.class_name);
    words.insert(words.end(), flag.begin(), flag.end());
  }
  words.emplace_back("--resume");
  return words;
}

StudyState run_study(const StudyCommand& command, StudyTask task, const StopRequest& stop) {
  find_device(task.study.runs.front().config->model.device, "model.device");
  save_study(task);
  const RunClaims claims(task.study.folder, task.mine, task.labels());
  refresh(command, task);
  warn_of_threads(task.study, task.slots.count(), command.jobs);
  if (const auto notice = task.slots.notice(); !notice.empty()) log::info("[study] ", notice);
  const auto folder = task.study.folder;
  RunQueue queue(std::move(task.study), std::move(task.mine), std::move(task.slots), command.methods);
  for (queue.fill(); !queue.empty(); queue.fill()) {
    if (stop && stop()) queue.stop();
    queue.poll();
    if (queue.stopped())
      throw Interrupted(
          concat(queue.summary(), ", the state is saved; resume with: ", command_line(resume_words(command, folder))));
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return read_state(folder);
}

}  // namespace evenkeel::study
