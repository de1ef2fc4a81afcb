#include "fed/run/event_log.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>

#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/log.h"
#include "base/plain/os_error.h"
#include "fed/run/stored_records.h"
#include "fed/store/run_files.h"
#include "scoring/measures.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kRoundTag = "train/", kScoreTag = "evaluate/", kExportedTag = "exported/";

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

void add_experts(const ExpertUse& use, std::vector<Scalar>& scalars) {
  int64_t dead = 0;
  for (const int64_t of_layer : use.dead_experts) dead += of_layer;
  scalars.push_back({"experts/entropy", use.entropy_mean});
  scalars.push_back({"experts/gini", use.gini_mean});
  scalars.push_back({"experts/dead", static_cast<double>(dead)});
}

ScalarEvent event_of(const RoundRecord& round) {
  std::vector<Scalar> scalars;
  if (!round.withheld)
    scalars = {{"train/tokens", static_cast<double>(round.tokens)},
               {"train/steps", static_cast<double>(round.steps)},
               {"train/flops", round.flops},
               {"train/experts_per_token", round.experts_per_token}};
  scalars.insert(scalars.end(), {{"train/participants", static_cast<double>(round.participants)},
                                 {"train/seconds", round.seconds.round},
                                 {"traffic/bytes_up", static_cast<double>(round.bytes_up)},
                                 {"traffic/bytes_down", static_cast<double>(round.bytes_down)}});
  if (round.privacy) scalars.push_back({"privacy/epsilon", round.privacy->epsilon});
  if (round.loss) scalars.insert(scalars.begin(), {"train/loss", *round.loss});
  if (round.lr) scalars.push_back({"train/lr", *round.lr});
  if (round.simulated) scalars.push_back({"train/simulated_seconds", round.simulated->end});
  if (round.experts) add_experts(*round.experts, scalars);
  for (const auto& [name, value] : round.metrics) scalars.push_back({"metrics/" + name, value});
  return {.wall_time = now(), .step = round.round, .scalars = std::move(scalars)};
}

/// Returns "evaluate/TASK/budget 0.5 mode a/" for scores of the run itself, and for those of the exported adapter
/// "exported/transformers/TASK/budget 0.5/".
std::string prefix_of(const scoring::TaskScore& score) {
  const bool own = score.served_by == scoring::ServedBy::kRun;
  return concat(own ? std::string(kScoreTag) : concat(kExportedTag, config::name_of(score.served_by), '/'), score.task,
                "/budget ", score.budget, score.rank_eval_mode.empty() ? "" : " mode ", score.rank_eval_mode, '/');
}

ScalarEvent event_of(const EvaluationRecord& record) {
  const auto& score = record.score;
  const auto prefix = prefix_of(score);
  std::vector<Scalar> scalars;
  for (const auto& measure : scoring::measures())
    if (const auto value = measure.of(score)) scalars.push_back({concat(prefix, measure.name), *value});
  return {.wall_time = now(), .step = record.round, .scalars = std::move(scalars)};
}

size_t count(const std::vector<ScalarEvent>& events, std::initializer_list<std::string_view> tags) {
  return static_cast<size_t>(std::count_if(events.begin(), events.end(), [&](const ScalarEvent& event) {
    return !event.scalars.empty() && std::any_of(tags.begin(), tags.end(), [&](std::string_view tag) {
      return event.scalars.front().tag.starts_with(tag);
    });
  }));
}

size_t count_rounds(const std::vector<ScalarEvent>& events) { return count(events, {kRoundTag}); }
size_t count_scores(const std::vector<ScalarEvent>& events) { return count(events, {kScoreTag, kExportedTag}); }

template <typename Record>
std::vector<Record> records_of(const SealedLines& lines) {
  std::vector<Record> records;
  for (const auto& line : lines.lines) records.push_back(record::read<Record>(line.view()));
  return records;
}

/// Returns the events of a file, and the length of its whole records. A damaged file counts as empty, because it can be
/// written anew from the records of the run.
std::vector<ScalarEvent> events_of(const fs::path& file, uint64_t& whole) try {
  return is_file(file) ? read_event_file(file, &whole) : std::vector<ScalarEvent>();
} catch (const Error& error) {
  log::warning("[report] ", error.what(), "; it is written anew");
  whole = 0;
  return {};
}

}  // namespace

EventLog::EventLog(fs::path folder, bool wanted)
    : file_(folder / run_file("tensorboard") / "events.out.tfevents.evenkeel"), wanted_(wanted) {
  if (!wanted_) return;
  const auto rounds = records_of<RoundRecord>(read_rounds(folder));
  auto scores = records_of<EvaluationRecord>(read_evaluations(folder));
  std::erase_if(scores, [](const EvaluationRecord& record) { return record.score.client.has_value(); });
  uint64_t whole = 0;
  auto written = events_of(file_, whole);
  if (whole == 0 || count_rounds(written) > rounds.size() || count_scores(written) > scores.size()) {
    make_folders(file_.parent_path());
    write_file_atomic(file_, event_file_head(now()));
    written.clear();
  } else {
    shorten_file(file_, static_cast<int64_t>(whole));
  }
  for (size_t i = count_rounds(written); i < rounds.size(); ++i) add(rounds[i]);
  for (size_t i = count_scores(written); i < scores.size(); ++i) add(scores[i]);
}

void EventLog::add(const RoundRecord& round) {
  if (wanted_) append(event_of(round));
}

void EventLog::add(const EvaluationRecord& evaluation) {
  if (wanted_ && !evaluation.score.client) append(event_of(evaluation));
}

void EventLog::append(const ScalarEvent& event) const {
  std::ofstream out(file_, std::ios::binary | std::ios::app);
  out << event_record(event) << std::flush;
  EK_CHECK(out.good(), kIo, file_.string(), ": cannot be written: ", os_error_text(errno));
}

}  // namespace evenkeel::fed
