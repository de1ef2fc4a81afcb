#include "flower/federation/sessions.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <utility>

#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/os_error.h"
#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

constexpr auto kTick = std::chrono::milliseconds(200);
constexpr double kHearing_s = 10;   // how long a message without a needed answer is waited for
constexpr int kMostEnvelopes = 16;  // limit of a node's envelopes in one exchange, enough for five restarts of the node

/// Makes a file of `bytes` bytes that has all its blocks: a disk that becomes full while a mapping of a sparse file is
/// written would end the process. \throws kIo
void make_whole_file(const fs::path& file, int64_t bytes) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  EK_CHECK(descriptor >= 0, kIo, file.string(), ": cannot be made: ", os_error_text(errno));
  int failure = 0;
  do {
    failure = bytes > 0 ? ::posix_fallocate(descriptor, 0, bytes) : 0;
  } while (failure == EINTR);
  ::close(descriptor);
  if (failure != 0) ::unlink(file.c_str());
  EK_CHECK(failure == 0, kIo, file.string(), ": no place for an upload of ", bytes, " bytes: ", os_error_text(failure));
}

/// Returns [bytes] uint8, mapped to an unlinked file, so that uploads take no anonymous memory.
at::Tensor mapped_buffer(const fs::path& folder, int64_t bytes) {
  static std::atomic<int64_t> next = 0;
  make_folders(folder);
  const auto file = folder / concat("arriving-", ::getpid(), "-", next++);
  make_whole_file(file, bytes);
  try {
    auto buffer_N = at::from_file(file.string(), true, bytes, at::kByte);
    remove_path(file);
    return buffer_N;
  } catch (const c10::Error& error) {
    remove_path(file);
    fail(kIo, file.string(), ": cannot be mapped: ", error.what_without_backtrace());
  }
}

const char* type_of(const fed::Task& task) {
  return std::holds_alternative<fed::Score>(task.ask) ? "evaluate" : "train";
}

/// Thrown for invalid data from a node. Only that node is lost.
struct Unfit : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void require_fit(bool condition, const std::string& why) {
  if (!condition) throw Unfit(why);
}
/// Runs `work` on data from a node; its errors become Unfit.
template <typename Work>
auto fitting(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw Unfit(error.what());
  } catch (const c10::Error& error) {
    throw Unfit(error.what_without_backtrace());
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

void check_no_payload(const Envelope& envelope, int64_t payload_bytes) {
  EK_CHECK(payload_bytes == 0, kData, "an envelope of kind ", shown(envelope.kind), " with ", payload_bytes,
           " bytes beside it");
}

Sessions::~Sessions() {
  for (const auto& session : sessions_)
    if (!session.waiting.empty()) fleet_.grid.forget(session.waiting);
}

void Sessions::begin(const methods::ClientProfile& client) {
  sessions_.push_back({.client = client, .name = concat("client ", client.id)});
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
  session.is_told = true;
  session.type = "query";
  session.own = std::move(envelope);
}

void Sessions::run() {
  while (any_open()) {
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
      if (session.waiting.empty()) send(session, node);
    }
  }
}

void Sessions::send(Session& session, const NodeInfo& node) {
  const auto& envelope = next_envelope(session);
  session.name = node.name;
  session.incoming = std::make_shared<IncomingEnvelope>(
      node.name,
      [most = fleet_.terms.most_upload](const Envelope&, int64_t bytes) {
        EK_CHECK(bytes <= most, kData, "an upload of ", bytes, " bytes, allowed: up to ", most);
      },
      [folder = fleet_.folder](int64_t bytes) { return mapped_buffer(folder, bytes); });
  session.sent = Clock::now();
  session.waiting = fleet_.grid.send(node.id, packer_.content(envelope),
                                     {.type = &envelope == &session.own ? session.type : "query",
                                      .group = std::to_string(session.round),
                                      .place = session.incoming->allocator()});
}

const Envelope& Sessions::next_envelope(Session& session) {
  const int64_t id = session.client.id;
  if (!fleet_.agreed.contains(id) && !session.is_told) return offer_ = offer_envelope(fleet_.offer(id));
  if (!session.is_told && fleet_.has_shared_state && !fleet_.informed.contains(id)) {
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
  session.type = type_of(task);
  session.round = task.round + 1;
}

void Sessions::on_reply(const Arrival& arrival) {
  const auto session = std::find_if(sessions_.begin(), sessions_.end(),
                                    [&](const Session& one) { return one.open && one.waiting == arrival.message_id; });
  if (session == sessions_.end()) return;
  session->waiting.clear();
  using Kind = Arrival::Kind;
  if (arrival.failure) throw *arrival.failure;  // no client is at fault
  if (arrival.kind == Kind::kLost) return;      // the node gets the envelope again when it is back
  if (arrival.kind != Kind::kReply) return lose(*session, shown(arrival.reason, kMostReason));
  try {
    on_reply(*session, session->incoming->envelope(), arrival);
  } catch (const Unfit& unfit) {
    lose(*session, shown(unfit.what(), kMostReason));
  }
}

/// Handles a node's answer. \throws Unfit if it is invalid
void Sessions::on_reply(Session& session, const Envelope& envelope, const Arrival& arrival) {
  require_fit(envelope.run == fleet_.roster.run(), "it answers about another run");
  require_fit(++session.received <= kMostEnvelopes, concat("no reply in ", kMostEnvelopes, " envelopes"));
  if (envelope.kind == kUnknownRunEnvelope) {
    fleet_.agreed.erase(session.client.id);
    fleet_.informed.erase(session.client.id);
  } else if (envelope.kind == kAcceptanceEnvelope) {
    accept(session, envelope);
  } else if (envelope.kind == kAcknowledgedEnvelope) {
    fleet_.informed.insert(session.client.id);
    if (session.is_told) session.open = false;
    if (session.taken) session.taken();
  } else if (envelope.kind == kShutdownEnvelope && session.own.kind == kShutdownEnvelope) {
    session.open = false;
  } else {
    require_fit(envelope.kind == kReplyEnvelope && !session.own.kind.empty() && !session.is_told,
                "nobody asked for its reply");
    finish(session, envelope, arrival);
  }
}

/// Checks that a returning client has the budget and the examples that it joined with.
void Sessions::accept(const Session& session, const Envelope& envelope) {
  const auto& member = fleet_.roster.members().at(session.client.id);
  const auto acceptance = fitting([&] { return acceptance_in(envelope); });
  require_fit(acceptance.client == member.client && acceptance.budget == member.budget &&
                  acceptance.examples == member.examples,
              concat("it comes back with budget ", acceptance.budget, " and ", acceptance.examples,
                     " examples, agreed on: ", member.budget, " and ", member.examples));
  fleet_.agreed.insert(session.client.id);
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
  if (session.is_told) return;
  report(session, why, nullptr);
  EK_CHECK(exchange_.on_loss, kData, session.name, ": ", why);
  exchange_.on_loss(session.client.id, concat(session.name, ": ", why));
}

void Sessions::report(const Session& session, const std::string& outcome, const Arrival* arrival) const {
  if (!fleet_.on_report) return;
  const auto size = [](const at::Tensor& payload_N) { return payload_N.defined() ? payload_N.numel() : 0; };
  fleet_.on_report({.round = session.round,
                    .client = session.client.id,
                    .node = session.name,
                    .outcome = outcome,
                    .seconds = seconds_since(session.sent),
                    .bytes_down = size(session.own.payload_N),
                    .bytes_up = arrival && session.incoming ? size(session.incoming->envelope().payload_N) : 0,
                    .moved = session.moved,
                    .client_s = arrival ? arrival->client_s : 0});
}

/// Returns why a client with a message, not a task, is too late: its node has not confirmed the message kHearing_s
/// after this object was made or, for the final adapter, has been offline for so long. \return empty if it is not late
std::string Sessions::lateness_of_message(const Session& session) const {
  if (session.taken)
    return seconds_since(session.last_online) > kHearing_s ? concat("its node was offline for ", kHearing_s, " s") : "";
  return seconds_since(begun_) > kHearing_s ? concat("its node did not confirm within ", kHearing_s, " s") : "";
}

/// Returns why a client is too late; empty if it is not. A training client is late after the deadline, once the quorum
/// has replied. Without a deadline, and for other clients, the node is late when it has been offline for `patience_s`.
std::string Sessions::lateness(const Session& session, bool is_past_deadline) const {
  const auto& terms = fleet_.terms;
  const bool has_deadline = terms.deadline_s > 0 && session.client.trains && !session.is_told;
  if (has_deadline) return is_past_deadline ? concat("no reply within ", terms.deadline_s, " s") : "";
  if (seconds_since(session.last_online) > terms.patience_s)
    return concat("its node was offline for ", terms.patience_s, " s");
  return session.is_told ? lateness_of_message(session) : "";
}

void Sessions::give_up_the_late() {
  const auto& terms = fleet_.terms;
  const bool is_past_deadline = terms.deadline_s > 0 && seconds_since(begun_) > terms.deadline_s &&
                                replies_ >= std::min<int64_t>(terms.quorum, std::ssize(sessions_));
  for (auto& session : sessions_) {
    const auto why = session.open ? lateness(session, is_past_deadline) : "";
    if (!why.empty()) lose(session, why);
  }
}

}  // namespace evenkeel::flower
