#include "flower/federation/sessions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/format/record.h"
#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "base/system/interrupt.h"
#include "flower/federation/arrivals.h"
#include "flower/federation/task_work.h"

namespace evenkeel::flower {
namespace {

constexpr auto kTick = std::chrono::milliseconds(200);
constexpr double kHearing_s = 10;   // how long a message without a needed answer is waited for
constexpr int kMostEnvelopes = 16;  // limit of a node's envelopes in one exchange, enough for five restarts of the node
constexpr size_t kLongestProgram = 64;               // bytes of the version that a node states
constexpr int64_t kMostTestRows = int64_t{1} << 24;  // the server draws among the rows of all

/// Thrown for invalid data from a node. Only that node is lost.
struct Unfit : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void require_fit(bool condition, const std::string& why) {
  if (!condition) throw Unfit(why);
}
/// Runs `work` on data from a node. Its exceptions become Unfit, except Interrupted, which no node causes.
template <typename Work>
decltype(auto) fitting(const Work& work) {
  try {
    return work();
  } catch (const Interrupted&) {
    throw;
  } catch (const c10::Error& error) {
    throw Unfit(error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw Unfit(error.what());
  }
}

}  // namespace

Envelope offer_envelope(const Offer& offer) {
  return {.run = offer.run, .kind = kOfferEnvelope, .header = record::write(offer).dump()};
}

Acceptance acceptance_in(const Envelope& envelope) {
  EK_CHECK(envelope.kind == kAcceptanceEnvelope, kData, "it answers an offer with an envelope of kind ",
           shown(envelope.kind));
  const Json json = parse_json(envelope.header, "an acceptance", kData, {.bytes = size_t{1} << 20});
  return record::read<Acceptance>({json, "an acceptance", kData});
}

void check_statements(const Acceptance& acceptance) {
  EK_CHECK(acceptance.test_rows >= 0 && acceptance.test_rows <= kMostTestRows, kData, "it says to have ",
           acceptance.test_rows, " test rows, allowed: 0 to ", kMostTestRows);
  EK_CHECK(acceptance.no_scores.empty() || acceptance.test_rows == 0, kData, "it says to have ", acceptance.test_rows,
           " test rows and to give no scores of them");
  EK_CHECK(acceptance.program.size() <= kLongestProgram && escaped(acceptance.program) == acceptance.program, kData,
           "its program is ", shown(acceptance.program), ", allowed: up to ", kLongestProgram,
           " bytes of printable text");
}

bool check_no_payload(const Envelope& envelope, int64_t payload_bytes) {
  EK_CHECK(payload_bytes == 0, kData, "an envelope of kind ", shown(envelope.kind), " with ", payload_bytes,
           " bytes beside it");
  return true;
}

Sessions::~Sessions() {
  for (const auto& session : sessions_)
    if (!session.waiting.empty()) fleet_.grid.forget(session.waiting);
}

void Sessions::begin(const methods::ClientProfile& client) {
  auto& session = sessions_.emplace_back(Session{.client = client, .name = concat("client ", client.id)});
  session.work = client.trains ? fed::AuditWork::kTrain : fed::AuditWork::kScore;  // until the task is made
  if (exchange_.training) session.round = exchange_.training->round.round + 1;
}

void Sessions::ask(const methods::ClientProfile& client, Envelope envelope,
                   std::function<void(const Envelope& answer)> answered) {
  begin(client);
  auto& session = sessions_.back();
  session.type = "query";
  session.work = fed::AuditWork::kNone;
  session.own = std::move(envelope);
  session.answered = std::move(answered);
}

void Sessions::tell(const methods::ClientProfile& client, const fed::StateUpdate& update) {
  tell(client, {fleet_.roster.run(), kUpdateEnvelope, fed::header_of(update), update.payload.bytes});
}

void Sessions::bring(const methods::ClientProfile& client, const lora::EncodedPayload& adapter,
                     std::function<void()> taken) {
  tell(client, {fleet_.roster.run(), kAdapterEnvelope, "{}", adapter.bytes});
  sessions_.back().taken = std::move(taken);
}

void Sessions::send_shutdown(const methods::ClientProfile& client) {
  tell(client, {fleet_.roster.run(), kShutdownEnvelope, "{}"});
}

void Sessions::tell(const methods::ClientProfile& client, Envelope envelope) {
  begin(client);
  auto& session = sessions_.back();
  if (const auto& members = fleet_.roster.members(); members.contains(client.id))
    session.name = members.at(client.id).name;
  session.is_told = true;
  session.type = "query";
  session.own = std::move(envelope);
}

void Sessions::run(const std::function<bool()>& enough) {
  while (any_open() && !(enough && enough())) {
    if (fleet_.attend) fleet_.attend();
    advance();
    if (const auto arrival = fleet_.grid.wait(Clock::now() + kTick)) on_reply(*arrival);
    give_up_the_late();
    tick();
  }
}

bool Sessions::any_open() const {
  return std::any_of(sessions_.begin(), sessions_.end(), [](const Session& session) { return session.open; });
}

/// Calls the exchange's progress callback, which can stop the run by an exception.
void Sessions::tick() {
  if (!exchange_.on_progress) return;
  for (const auto& session : sessions_)
    if (session.open)
      return exchange_.on_progress(
          {.client = session.client.id, .clients_done = replies_, .clients = std::ssize(sessions_)});
}

/// Sends the next envelope to each online node that owes no answer.
void Sessions::advance() {
  for (const auto& node : fleet_.grid.nodes()) {
    const auto* member = fleet_.roster.member(node);
    if (!member || !node.online) continue;
    for (auto& session : sessions_) {
      if (!session.open || session.client.id != member->client) continue;
      session.last_online = Clock::now();
      session.heard_at = node.last_beat;
      if (session.waiting.empty()) send(session, node);
    }
  }
}

void Sessions::send(Session& session, const NodeInfo& node) {
  const auto& next = next_envelope(session);
  const auto envelope = outgoing(session, next);
  session.name = node.name;
  session.incoming = std::make_shared<IncomingEnvelope>(
      node.name,
      [most = fleet_.terms.most_upload](const Envelope&, int64_t bytes) {
        EK_CHECK(bytes <= most, kData, "an upload of ", bytes, " bytes, allowed: up to ", most);
        return true;
      },
      [folder = fleet_.folder](int64_t bytes) { return mapped_buffer(folder, bytes); });
  session.sent = Clock::now();
  session.waiting = fleet_.grid.send(node.id, packer_.content(envelope),
                                     {.type = &next == &session.own ? session.type : "query",
                                      .group = std::to_string(session.round),
                                      .place = session.incoming->allocator()});
  session.down += envelope.bytes();
  if (&next == &session.own && !session.is_told && !session.answered) record_task(session, node, envelope);
}

void Sessions::record_task(const Session& session, const NodeInfo& node, const Envelope& envelope) {
  fleet_.record({.kind = fed::AuditKind::kTask,
                 .key = roster_key(node),
                 .name = node.name,
                 .client = session.client.id,
                 .round = session.round,
                 .work = session.work,
                 .bytes_down = envelope.bytes(),
                 .digest = session.is_left_out ? session.digest : digests_.of(envelope.payload_N)});
}

/// Returns the envelope as it is sent: with the head of the audit log, with the outcome of the client's last work if
/// its node was not told yet, and without a payload that the node keeps.
Envelope Sessions::outgoing(Session& session, const Envelope& envelope) {
  auto sent = envelope;
  sent.audit = fleet_.audit_head();
  const auto untold = fleet_.untold.find(session.client.id);
  session.tells = untold != fleet_.untold.end();
  if (session.tells) sent.outcome = record::write(untold->second).dump();
  const auto& kept = fleet_.kept[session.client.id];
  session.is_left_out = &envelope == &session.own && !session.digest.empty() &&
                        std::find(kept.begin(), kept.end(), session.digest) != kept.end();
  if (session.is_left_out) {
    sent.payload_digest = session.digest;
    sent.payload_N = at::Tensor();
  }
  return sent;
}

/// Remembers that the client's node has the payload of the task, by the rule of the node (KeptPayloads).
void Sessions::keeps(const Session& session) {
  auto& kept = fleet_.kept[session.client.id];
  std::erase(kept, session.digest);
  if (!session.digest.empty()) kept.push_back(session.digest);
  if (std::ssize(kept) > kMostKeptPayloads) kept.erase(kept.begin());
}

const Envelope& Sessions::next_envelope(Session& session) {
  const int64_t id = session.client.id;
  if (!fleet_.agreed.contains(id) && !session.is_told) return offer_ = offer_envelope(fleet_.offer(id));
  if (!session.is_told && !session.answered && fleet_.has_shared_state && !fleet_.informed.contains(id)) {
    if (!whole_.kind.empty()) return whole_;
    const auto update = exchange_.full_sync();
    return whole_ = {fleet_.roster.run(), kUpdateEnvelope, fed::header_of(update), update.payload.bytes};
  }
  if (session.own.kind.empty()) make_task(session);
  return session.own;
}

void Sessions::make_task(Session& session) {
  const auto task = exchange_.task_of(session.client);
  session.own = {fleet_.roster.run(), kTaskEnvelope, fed::header_of(task), task.payload.bytes};
  session.work = work_of(task);
  session.round = round_of(task);
  const bool scores = session.work == fed::AuditWork::kScore;
  session.type = scores ? "evaluate" : "train";
  session.digest = scores ? digests_.of(task.payload.bytes) : "";
  if (!scores) fleet_.kept.erase(session.client.id);  // as the node does
}

void Sessions::on_reply(const Arrival& arrival) {
  const auto session = std::find_if(sessions_.begin(), sessions_.end(),
                                    [&](const Session& one) { return one.open && one.waiting == arrival.message_id; });
  if (session == sessions_.end()) {
    if (fleet_.on_other) fleet_.on_other(arrival);
    return;
  }
  session->waiting.clear();
  using Kind = Arrival::Kind;
  if (arrival.failure) throw *arrival.failure;  // no client is at fault
  if (arrival.kind == Kind::kLost) return;      // the node gets the envelope again when it is back
  if (arrival.kind != Kind::kReply) return lose(*session, shown(arrival.reason, kMostReason));
  try {
    const auto& envelope = fitting([&]() -> const Envelope& { return session->incoming->envelope(); });
    on_reply(*session, envelope, arrival);
  } catch (const Unfit& unfit) {
    lose(*session, shown(unfit.what(), kMostReason));
  }
}

/// Handles a node's answer. \throws Unfit if it is invalid
void Sessions::on_reply(Session& session, const Envelope& envelope, const Arrival& arrival) {
  require_fit(envelope.run == fleet_.roster.run(), "it answers about another run");
  require_fit(++session.received <= kMostEnvelopes, concat("no reply in ", kMostEnvelopes, " envelopes"));
  session.up += envelope.bytes();
  if (session.tells) fleet_.untold.erase(session.client.id);
  if (envelope.kind == kUnknownRunEnvelope) {
    fleet_.agreed.erase(session.client.id);
    fleet_.informed.erase(session.client.id);
    fleet_.kept.erase(session.client.id);
  } else if (envelope.kind == kLackingEnvelope) {
    require_fit(session.is_left_out, "it lacks a payload that was sent to it");
    fleet_.kept.erase(session.client.id);
  } else if (envelope.kind == kAcceptanceEnvelope) {
    accept(session, envelope);
  } else if (envelope.kind == kAcknowledgedEnvelope) {
    fleet_.informed.insert(session.client.id);
    if (session.is_told) session.open = false;
    if (session.taken) record_end(session);
    if (session.taken) session.taken();
  } else if (envelope.kind == kShutdownEnvelope && session.own.kind == kShutdownEnvelope) {
    session.open = false;
  } else if (session.answered) {
    require_fit(envelope.kind == session.own.kind && !envelope.payload_N.defined(), "nobody asked for its reply");
    fitting([&] { session.answered(envelope); });
    session.open = false;
    ++replies_;
  } else {
    require_fit(envelope.kind == kReplyEnvelope && !session.own.kind.empty() && !session.is_told,
                "nobody asked for its reply");
    finish(session, envelope, arrival);
  }
}

/// Checks that a returning client has the budget, the examples and the content that it joined with. If
/// clients.on_change is "record", other content is recorded. Another program always is.
void Sessions::accept(const Session& session, const Envelope& envelope) {
  const auto& member = fleet_.roster.members().at(session.client.id);
  const auto acceptance = fitting([&] { return acceptance_in(envelope); });
  require_fit(acceptance.client == member.client && acceptance.budget == member.budget &&
                  acceptance.examples == member.examples,
              concat("it comes back with budget ", acceptance.budget, " and ", acceptance.examples,
                     " examples, agreed on: ", member.budget, " and ", member.examples));
  fitting([&] { check_statements(acceptance); });
  const auto parts = changed_parts(member.content, acceptance.content);
  require_fit(parts.empty() || fleet_.joining.on_change == fed::OnChange::kRecord, concat("it ", change_text(parts)));
  if (!parts.empty()) log::warning("[serve] ", session.name, " ", change_text(parts), "; recorded");
  if (acceptance.program != member.program)
    log::warning("[serve] ", session.name, " comes back with evenkeel ", shown(acceptance.program), ", it joined with ",
                 shown(member.program), "; recorded");
  if (acceptance.content != member.content || acceptance.program != member.program)
    fleet_.roster.note_return(member.client, acceptance.content, acceptance.program, parts, fleet_.rounds.value_or(0));
  fleet_.agreed.insert(session.client.id);
  fleet_.record({.kind = fed::AuditKind::kAgain,
                 .key = member.key,
                 .name = member.name,
                 .client = member.client,
                 .outcome = concat("budget ", member.budget, ", ", member.examples, " examples"),
                 .peer = envelope.audit});
  if (member.no_scores.empty() || !acceptance.no_scores.empty()) return;
  auto gives = member;  // its owner has allowed scores in the meantime
  gives.test_rows = acceptance.test_rows;
  gives.no_scores.clear();
  fleet_.roster.add(std::move(gives));
}

void Sessions::finish(Session& session, const Envelope& envelope, const Arrival& arrival) {
  auto reply = fitting([&] {
    auto message = fed::from_parts(envelope.header, envelope.payload_N, session.name);
    const auto* reply = std::get_if<fed::Reply>(&message);
    EK_CHECK(reply && reply->client == session.client.id, kData, session.name, " sends no reply of client ",
             session.client.id);
    if (exchange_.check) session.moved = exchange_.check(session.client, *reply).value_or(0);
    return std::move(std::get<fed::Reply>(message));
  });
  if (session.work == fed::AuditWork::kScore) keeps(session);
  if (session.work == fed::AuditWork::kTrain)
    fleet_.informed.insert(session.client.id);  // its task had the last change
  report(session, "reply", &arrival);
  session.open = false;
  session.own = {};
  ++replies_;
  exchange_.on_reply(std::move(reply));
}

void Sessions::lose(Session& session, const std::string& why) {
  if (!session.waiting.empty()) fleet_.grid.forget(std::exchange(session.waiting, {}));
  session.open = false;
  fleet_.informed.erase(session.client.id);
  fleet_.kept.erase(session.client.id);
  if (session.is_told) return;
  if (session.answered)
    record_silence(session, why);
  else
    report(session, why, nullptr);
  EK_CHECK(exchange_.on_lost, kData, session.name, ": ", why);
  exchange_.on_lost(session.client.id, concat(session.name, ": ", why));
}

/// Reports how a task ended. Its node is told with the next message; of scores, only that one was not taken.
/// \param arrival  null: there is no reply, and `outcome` says why
void Sessions::report(const Session& session, const std::string& outcome, const Arrival* arrival) {
  const int64_t id = session.client.id;
  fed::AuditEvent event{.kind = arrival ? fed::AuditKind::kReply : fed::AuditKind::kLost,
                        .name = session.name,
                        .client = id,
                        .round = session.round,
                        .work = session.work,
                        .bytes_down = session.down,
                        .bytes_up = session.up,
                        .outcome = outcome,
                        .seconds = seconds_since(session.sent)};
  if (const auto known = fleet_.roster.members().find(id); known != fleet_.roster.members().end())
    event.key = known->second.key;
  if (arrival) {
    event.digest = payload_digest(session.incoming->envelope().payload_N);
    event.peer = session.incoming->envelope().audit;
    event.client_s = arrival->client_s;
  }
  if (session.moved > 0) event.moved = session.moved;
  remember_outcome(session, arrival != nullptr, outcome);
  fleet_.record(event);
  if (fleet_.on_report) fleet_.on_report(event);
}

/// Remembers what to tell a node of its last work. That a score was not taken does not replace what became of a
/// training, on which the node's state depends.
void Sessions::remember_outcome(const Session& session, bool taken, const std::string& why) {
  const int64_t id = session.client.id;
  const auto untold = fleet_.untold.find(id);
  const bool is_score = session.work == fed::AuditWork::kScore;
  if (is_score && (taken || (untold != fleet_.untold.end() && untold->second.work == fed::AuditWork::kTrain))) return;
  fleet_.untold[id] = {session.round, session.work, taken, taken ? "" : why};
}

/// Records that a client gave no answer in a phase of a masked round.
void Sessions::record_silence(const Session& session, const std::string& why) {
  fleet_.record({.kind = fed::AuditKind::kLost,
                 .key = fleet_.roster.members().at(session.client.id).key,
                 .name = session.name,
                 .client = session.client.id,
                 .round = session.round,
                 .outcome = concat(session.own.kind, ": ", why)});
}

/// Records that a node has the final adapter.
void Sessions::record_end(const Session& session) {
  const auto& member = fleet_.roster.members().at(session.client.id);
  fleet_.record({.kind = fed::AuditKind::kAdapter,
                 .key = member.key,
                 .name = member.name,
                 .client = member.client,
                 .bytes_down = session.down,
                 .digest = payload_digest(session.own.payload_N),
                 .outcome = "the node has the final adapter",
                 .peer = session.incoming->envelope().audit});
}

/// Returns true if the client was too late before in this round and may not cost another wait.
bool Sessions::was_late(const Session& session) const {
  const auto late = fleet_.late.find(session.client.id);
  if (late == fleet_.late.end()) return false;
  return late->second.slow || session.heard_at <= late->second.lost_at;
}

/// Returns true if a client that was in time so far owes a reply.
bool Sessions::any_in_time() const {
  return std::any_of(sessions_.begin(), sessions_.end(),
                     [&](const Session& session) { return session.open && !was_late(session); });
}

/// Returns true if the deadline is over and enough clients have replied.
bool Sessions::is_past_deadline() const {
  const auto& terms = fleet_.terms;
  const int64_t asked = std::ssize(sessions_);
  const int64_t share = terms.quorum * asked / std::max<int64_t>(1, std::max(terms.clients, asked));
  return terms.deadline_s > 0 && seconds_since(begun_) > terms.deadline_s &&
         replies_ >= std::min(scores_ ? share : terms.quorum, asked);
}

/// Returns that the node has been offline for too long; empty if it has not.
std::string Sessions::absence(const Session& session) const {
  const double patience = fleet_.terms.patience_s;
  return seconds_since(session.last_online) > patience ? concat("its node was offline for ", patience, " s") : "";
}

/// Returns why a client with a message, not a task, is too late: its node has not confirmed the message kHearing_s
/// after this object was made or, for the final adapter, has been offline for so long. A node that was too late before
/// is told of the end of the run without a wait of its own. \return empty if it is not late
std::string Sessions::lateness_of_message(const Session& session) const {
  if (was_late(session) && session.own.kind == kShutdownEnvelope && !any_in_time())
    return "its node was too late before";
  if (session.taken && !was_late(session))
    return seconds_since(session.last_online) > kHearing_s ? concat("its node was offline for ", kHearing_s, " s") : "";
  return seconds_since(begun_) > kHearing_s ? concat("its node did not confirm within ", kHearing_s, " s") : "";
}

/// Returns why the client of a score is too late; empty if it is not.
std::string Sessions::lateness_of_score(const Session& session, bool is_past_deadline) const {
  if (is_past_deadline) return concat("no score within ", fleet_.terms.deadline_s, " s");
  if (was_late(session) && !any_in_time()) return "no score: its node was too late before in this round";
  return absence(session);
}

/// Returns why a client is too late; empty if it is not.
std::string Sessions::lateness(const Session& session, bool is_past_deadline) const {
  const auto& terms = fleet_.terms;
  if (is_barred(session)) return "its key was removed from the list of keys";
  if (session.is_told) {
    const auto absent = absence(session);
    return absent.empty() ? lateness_of_message(session) : absent;
  }
  if (scores_) return lateness_of_score(session, is_past_deadline);
  if (terms.deadline_s > 0 && session.client.trains)
    return is_past_deadline ? concat("no reply within ", terms.deadline_s, " s") : "";
  return absence(session);
}

bool Sessions::is_barred(const Session& session) const {
  const auto& members = fleet_.roster.members();
  const auto member = members.find(session.client.id);
  return member != members.end() && !fleet_.grid.admits(member->second.key);
}

void Sessions::give_up_the_late() {
  const bool past = is_past_deadline();
  for (auto& session : sessions_) {
    const auto why = session.open ? lateness(session, past) : "";
    if (why.empty()) continue;
    if (!session.is_told) fleet_.late.insert_or_assign(session.client.id, LateClient{now_seconds(), scores_ && past});
    lose(session, why);
  }
}

}  // namespace evenkeel::flower
