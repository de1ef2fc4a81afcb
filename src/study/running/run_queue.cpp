#include "study/running/run_queue.h"

#include <unistd.h>

#include <csignal>
#include <utility>

#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "fed/round/progress.h"
#include "fed/run/new_run_folder.h"
#include "fed/store/changed_keys.h"

namespace evenkeel::study {
namespace {

constexpr int kInterrupted = 130;

/// Returns true for the exit code of a run that was asked to stop, also before it could save anything.
bool is_stopped(int code) { return code == kInterrupted || code == 128 + SIGTERM || code == 128 + SIGINT; }

constexpr std::string_view kErrorLine = "evenkeel: ", kWarning = "warning";
constexpr size_t kTimeOfLine = 9;  // "12:34:56 "

/// Returns the text of a log line if it is a warning, else "".
std::string_view warning_in(std::string_view line) {
  if (line.size() <= kTimeOfLine || !line.substr(kTimeOfLine).starts_with(kWarning)) return {};
  return line.substr(kTimeOfLine + kWarning.size() + 1);
}

/// Returns the settings for files that are no longer where the text of the arm's config says.
std::vector<std::string> moved_files(const PlannedArm& arm) {
  const auto then = fed::ExperimentConfig::read(config::Table::parse(arm.text, arm.name));
  std::vector<std::string> settings;
  for (const auto& change : fed::changed_keys(arm.resolved, then))
    settings.push_back(concat(change.key, "=", change.asked.value_or("\"\"")));
  return settings;
}

}  // namespace

RunQueue::RunQueue(Study study, std::vector<size_t> mine, JobSlots slots, std::map<std::string, std::string> methods)
    : study_(std::move(study)),
      mine_(std::move(mine)),
      slots_(std::move(slots)),
      methods_(std::move(methods)),
      progress_(study_, mine_, slots_.count()) {}

std::vector<std::string> RunQueue::words_of(size_t run) const {
  const auto& [arm, seed, config] = study_.runs[run];
  const auto folder = study_.folder / study_.state.runs[run].folder;
  const auto file = study_.folder / arm / kArmFile;
  std::vector<std::string> words{"--quiet", "train", file.string(), "--out", folder.string()};
  const auto methods = method_words(config->method);
  words.insert(words.end(), methods.begin(), methods.end());
  const auto& base = study_.state.moved_base;
  if (fed::holds_run(folder)) {  // resuming needs no settings
    words.emplace_back("--resume");
    if (!base.empty()) words.insert(words.end(), {"--base", base});
  } else {
    words.insert(words.end(), {"--set", concat("seed=", seed)});
    for (const auto& setting : moved_files(*find_arm(study_.arms, arm))) words.insert(words.end(), {"--set", setting});
  }
  return words;
}

/// Names the methods in Python whose keys the config has, and chooses its own.
std::vector<std::string> RunQueue::method_words(const fed::MethodSection& section) const {
  std::vector<std::string> words;
  for (const auto& [entry, table] : section.tables)
    if (const auto method = methods_.find(std::string(entry->name)); method != methods_.end())
      words.insert(words.end(), {"--method", method->second});
  if (!words.empty()) words.insert(words.end(), {"--set", concat("method.name=\"", section.name, "\"")});
  return words;
}

void RunQueue::start(size_t run, size_t slot) {
  record(run, RunState::kRunning, 0, {});
  make_folders((study_.folder / study_.state.runs[run].folder).parent_path());
  at_work_.emplace(
      run, Worker{ChildProcess(words_of(run), slots_.environment(slot)), slot, std::chrono::steady_clock::now()});
  progress_.begin(run);
}

void RunQueue::fill() {
  for (; !stopping_ && next_ < mine_.size(); ++next_) {
    if (study_.state.runs[mine_[next_]].state == RunState::kDone) continue;
    const auto slot = slots_.take();
    if (!slot) return;
    start(mine_[next_], *slot);
  }
}

void RunQueue::read_output(size_t run, Worker& worker) {
  const auto label = study_.state.runs[run].label();
  for (const auto& line : worker.process.lines()) {
    if (std::string_view(line).starts_with(kErrorLine)) worker.error = line.substr(kErrorLine.size());
    if (const auto text = warning_in(line); !text.empty()) log::warning("[study] ", label, ": ", text);
  }
}

void RunQueue::record(size_t run, RunState state, double seconds, const std::string& error) {
  const auto& mine = study_.state.runs[run];
  const auto change = [&](StudyState& now) {
    auto& entry = *now.find(mine.arm, mine.seed);
    entry.state = state;
    entry.error = error.empty() ? std::nullopt : std::optional(error);
    if (seconds > 0) entry.seconds = entry.seconds.value_or(0) + seconds;
  };
  const auto now = update_state(study_.folder, change);
  study_.state.runs[run] = *now.find(mine.arm, mine.seed);
}

void RunQueue::ended(size_t run, const Worker& worker, int code) {
  const double seconds = seconds_since(worker.since);
  const bool stopped = stopping_ && is_stopped(code);
  auto error = worker.error;
  if (code == 0 || stopped) error.clear();
  if (error.empty() && code != 0 && !stopped)
    error = code > 128 ? concat("killed by signal ", code - 128) : concat("exit code ", code);
  record(run, code == 0 ? RunState::kDone : stopped ? RunState::kPlanned : RunState::kFailed, seconds, error);
  const auto& now = study_.state.runs[run];
  progress_.end(run, code == 0 ? now.seconds : std::nullopt);
  if (!error.empty()) log::error("[study] ", now.label(), " failed: ", error);
  if (!stopped)
    log::info("[study] ", now.label(), code == 0 ? " done in " : " ended after ", fed::readable_duration(seconds), "; ",
              progress_.text());
  if (::isatty(STDERR_FILENO) == 1) line_.update(progress_.text());  // instead of its last round
}

void RunQueue::poll() {
  std::vector<std::pair<size_t, int>> ends;
  for (auto& [run, worker] : at_work_) {
    const auto code = worker.process.exit_code();  // must be read before the last lines
    read_output(run, worker);
    if (code) ends.emplace_back(run, *code);
  }
  for (const auto& [run, code] : ends) {
    const auto worker = at_work_.extract(run);
    slots_.give_back(worker.mapped().slot);
    ended(run, worker.mapped(), code);
  }
  if (progress_.poll()) line_.update(progress_.text());
}

void RunQueue::stop() {
  if (std::exchange(stopping_, true)) return;
  for (const auto& [run, worker] : at_work_) worker.process.stop();
}

}  // namespace evenkeel::study
