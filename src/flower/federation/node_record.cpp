#include "flower/federation/node_record.h"

#include "base/format/record.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/number_text.h"
#include "base/plain/text.h"
#include "flower/federation/kept_payloads.h"
#include "flower/federation/task_work.h"
#include "flower/format/flwr_message.h"
#include "privacy/signal.h"

namespace evenkeel::flower {
namespace {

using fed::AuditKind;
using fed::AuditWork;

std::string mebibytes(int64_t bytes) { return concat(fixed(static_cast<double>(bytes) / (1 << 20), 2), " MiB"); }

std::string signal_text(const train::PrivateReport& report) {
  if (!report.signal) return {};
  return concat(", gradients ", privacy::beside_noise(*report.signal));
}

/// Says that an upload was masked; empty if it was not.
std::string masked_among(const fed::Task& task) {
  const auto* ask = std::get_if<fed::Train>(&task.ask);
  if (!ask || !ask->summed) return {};
  return concat(", masked the upload among ", ask->summed->roster.size(), " clients");
}

/// Says what was done for a task of training or of gradients.
std::string done_for(const fed::Task& task, const fed::Reply& reply, int64_t rows) {
  const auto* report = std::get_if<train::LocalReport>(&reply.report);
  if (work_of(task) == AuditWork::kGradients || !report) return "summed gradients";
  if (report->privacy)
    return concat("trained on ", rows, " rows in ", report->steps, " private steps, epsilon ",
                  fixed(report->privacy->epsilon, 3), " of all rounds so far at delta ", report->privacy->delta,
                  signal_text(*report->privacy), masked_among(task));
  if (const auto masked = masked_among(task); !masked.empty())
    return concat("trained on ", rows, " rows in ", report->steps, " steps", masked);
  const auto mean = report->targets > 0 ? report->loss_sum / static_cast<double>(report->targets) : 0;
  return concat("trained on ", rows, " rows in ", report->steps, " steps, loss ", fixed(mean, 4), " (first step ",
                fixed(report->first_loss, 4), ", last ", fixed(report->last_loss, 4), ")");
}

std::string round_text(const fed::AuditEvent& event) { return concat("[node] round ", event.round.value_or(0), ": "); }

WorkOutcome outcome_in(const std::string& text) {
  constexpr const char* kWhat = "the server's word on the last work";
  const Json json = parse_json(text, kWhat, kData, {.bytes = size_t{1} << 14});
  return record::read<WorkOutcome>({json, kWhat, kData});
}

}  // namespace

NodeRecord::NodeRecord(const fs::path& folder) : audit_(folder.empty() ? fs::path() : folder / fed::kAuditFile) {}

void NodeRecord::add_of_run(fed::AuditEvent event) {
  event.run = run_;
  audit_.add(event);
}

std::optional<WorkOutcome> NodeRecord::hear(const Envelope& envelope) {
  answer_.reset();
  run_ = envelope.run;
  if (envelope.outcome.empty()) return {};
  auto outcome = outcome_in(envelope.outcome);
  const auto reason = shown(outcome.reason, kMostReason);
  if (!outcome.taken)
    log::warning("[node] round ", outcome.round, ": the server did not take this node's ",
                 outcome.work == AuditWork::kScore ? "score" : "reply", " because: ", reason);
  add_of_run({.kind = AuditKind::kOutcome,
              .name = "server",
              .round = outcome.round,
              .work = outcome.work,
              .outcome = outcome.taken ? "taken" : concat("not taken: ", reason),
              .peer = envelope.audit});
  return outcome;
}

void NodeRecord::agreed(const Envelope& offer, const Acceptance& acceptance) {
  add_of_run({.kind = AuditKind::kJoin,
              .name = "server",
              .client = acceptance.client,
              .digest = sha256(offer.header),
              .outcome = concat("agreed: budget ", acceptance.budget, ", ", acceptance.examples, " examples, ",
                                acceptance.test_rows, " test rows"),
              .peer = offer.audit});
}

void NodeRecord::refused(const Envelope& envelope, const std::string& why) {
  add_of_run({.kind = AuditKind::kRefused,
              .name = "server",
              .bytes_down = envelope.bytes(),
              .outcome = concat("asked: ", shown(envelope.kind), "; refused: ", why),
              .peer = envelope.audit});
}

void NodeRecord::received(const Envelope& envelope, const fed::Task& task) {
  down_ = envelope.bytes();
  if (work_of(task) != AuditWork::kScore || round_of(task) != scores_.round) tell_scores();
  add_of_run({.kind = AuditKind::kTask,
              .name = "server",
              .client = task.client.id,
              .round = round_of(task),
              .work = work_of(task),
              .bytes_down = down_,
              .digest = envelope.payload_digest.empty() ? payload_digest(envelope.payload_N) : envelope.payload_digest,
              .peer = envelope.audit});
}

void NodeRecord::answered(const fed::Task& task, const fed::Reply& reply, const Envelope& answer, int64_t rows) {
  answer_ = Answer{.event = {.kind = AuditKind::kReply,
                             .name = "server",
                             .client = task.client.id,
                             .round = round_of(task),
                             .work = work_of(task),
                             .bytes_down = down_,
                             .bytes_up = answer.bytes(),
                             .digest = payload_digest(answer.payload_N)},
                   .work = done_for(task, reply, rows)};
}

void NodeRecord::sent() {
  if (!answer_) return;
  auto [event, work] = *std::exchange(answer_, std::nullopt);
  event.outcome = "sent";
  add_of_run(event);
  if (event.work == AuditWork::kScore) {
    scores_ = {*event.round, scores_.count + 1, scores_.down + *event.bytes_down, scores_.up + *event.bytes_up};
    return;
  }
  log::info(round_text(event), "received ", mebibytes(*event.bytes_down), ", ", work, ", sent ",
            mebibytes(*event.bytes_up));
}

void NodeRecord::not_sent(const std::string& why) {
  if (!answer_) return log::warning("[node] an answer did not reach the server: ", why);
  auto [event, work] = *std::exchange(answer_, std::nullopt);
  log::warning(round_text(event), event.work == AuditWork::kScore ? "scored its test rows" : work,
               ", but the server did not take the reply of ", mebibytes(*event.bytes_up), ": ", why);
  event.kind = AuditKind::kLost;
  event.outcome = why;
  add_of_run(event);
}

void NodeRecord::adapter(const Envelope& envelope, const std::string& where) {
  tell_scores();
  add_of_run({.kind = AuditKind::kAdapter,
              .name = "server",
              .bytes_down = envelope.bytes(),
              .digest = payload_digest(envelope.payload_N),
              .outcome = where,
              .peer = envelope.audit});
}

void NodeRecord::over(const Envelope& envelope) {
  tell_scores();
  add_of_run({.kind = AuditKind::kOver, .name = "server", .outcome = "the run is over", .peer = envelope.audit});
}

/// Writes one line for all scores of a round.
void NodeRecord::tell_scores() {
  const auto scores = std::exchange(scores_, {});
  if (scores.count > 0)
    log::info("[node] after round ", scores.round, ": scored its test rows ", scores.count, " times, received ",
              mebibytes(scores.down), ", sent ", mebibytes(scores.up));
}

}  // namespace evenkeel::flower
