#include "flower/federation/sessions.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <utility>

#include "base/plain/files.h"
#include "base/plain/text.h"

namespace evenkeel {
namespace {

constexpr auto kTick = std::chrono::milliseconds(200);
constexpr double kHearing_s = 10;  // for which somebody is told what needs no answer
constexpr int kMostWords = 16;     // letters of a node in one exchange: it may begin a new life five times

/// [bytes] uint8 in a file that nobody else sees and that goes with the tensor: what arrives is not held in memory.
at::Tensor mapped_buffer(const fs::path& folder, int64_t bytes) {
  static std::atomic<int64_t> next = 0;
  make_folders(folder);
  const auto file = folder / concat("arriving-", ::getpid(), "-", next++);
  auto buffer_N = at::from_file(file.string(), true, bytes, at::kByte);
  remove_path(file);
  return buffer_N;
}

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

const char* type_of(const Task& task) { return std::holds_alternative<Score>(task.ask) ? "evaluate" : "train"; }

/// What a node sent that cannot be taken: it is lost, and nobody else.
struct Unfit : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void require_fit(bool condition, const std::string& why) {
  if (!condition) throw Unfit(why);
}
/// Runs `work` over what a stranger sent.
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

Letter offer_letter(const Offer& offer) {
  return {.run = offer.run, .kind = kOfferLetter, .header = record::write(offer).dump()};
}

Acceptance acceptance_in(const Letter& letter) {
  EK_CHECK(letter.kind == kAcceptanceLetter, kData, "it answers an offer with a letter of kind ", shown(letter.kind));
  const Json json = parse_json(letter.header, "an acceptance", kData, {.bytes = size_t{1} << 20});
  return record::read<Acceptance>({json, "an acceptance", kData});
}

void no_payload(const Letter& letter, int64_t payload_bytes) {
  EK_CHECK(payload_bytes == 0, kData, "a letter of kind ", shown(letter.kind), " with ", payload_bytes,
           " bytes beside it");
}

Talks::~Talks() {
  for (const auto& talk : talks_)
    if (!talk.waiting.empty()) fabric_.grid_.forget(talk.waiting);
}

void Talks::begin(const ClientProfile& client) {
  talks_.push_back({.client = client, .name = concat("client ", client.id)});
}

void Talks::tell(const ClientProfile& client, const News& news) {
  tell(client, {fabric_.roster_.run(), kNewsLetter, header_of(news), news.payload.bytes});
}

void Talks::bring(const ClientProfile& client, const EncodedPayload& adapter, std::function<void()> taken) {
  tell(client, {fabric_.roster_.run(), kAdapterLetter, "{}", adapter.bytes});
  talks_.back().taken = std::move(taken);
}

void Talks::bid_farewell(const ClientProfile& client) { tell(client, {fabric_.roster_.run(), kFarewellLetter, "{}"}); }

void Talks::tell(const ClientProfile& client, Letter letter) {
  begin(client);
  auto& talk = talks_.back();
  talk.is_told = true;
  talk.type = "query";
  talk.own = std::move(letter);
}

void Talks::run() {
  while (any_open()) {
    advance();
    if (const auto arrival = fabric_.grid_.wait(Clock::now() + kTick)) hear(*arrival);
    give_up_the_late();
    tick();
  }
}

bool Talks::any_open() const {
  return std::any_of(talks_.begin(), talks_.end(), [](const Talk& talk) { return talk.open; });
}

/// Whoever asks for progress may stop everything.
void Talks::tick() {
  if (!exchange_.on_progress) return;
  for (const auto& talk : talks_)
    if (talk.open) return exchange_.on_progress({.client = talk.client.id});
}

/// Those whose node is there and owes no answer get their next letter.
void Talks::advance() {
  for (const auto& node : fabric_.grid_.nodes()) {
    const auto* member = fabric_.roster_.member(node);
    if (!member || !node.online) continue;
    for (auto& talk : talks_) {
      if (!talk.open || talk.client.id != member->client) continue;
      talk.last_online = Clock::now();
      if (talk.waiting.empty()) send(talk, node);
    }
  }
}

void Talks::send(Talk& talk, const wire::NodeInfo& node) {
  const auto& letter = next_letter(talk);
  talk.name = node.name;
  talk.incoming = std::make_shared<IncomingLetter>(
      node.name,
      [most = fabric_.terms_.most_upload](const Letter&, int64_t bytes) {
        EK_CHECK(bytes <= most, kData, "an upload of ", bytes, " bytes, allowed: up to ", most);
      },
      [folder = fabric_.folder_](int64_t bytes) { return mapped_buffer(folder, bytes); });
  talk.sent = Clock::now();
  talk.waiting = fabric_.grid_.send(node.id, packer_.content(letter),
                                    {.type = &letter == &talk.own ? talk.type : "query",
                                     .group = std::to_string(talk.round),
                                     .place = talk.incoming->placing()});
}

const Letter& Talks::next_letter(Talk& talk) {
  const int64_t id = talk.client.id;
  if (!fabric_.agreed_.contains(id) && !talk.is_told) return offer_ = offer_letter(fabric_.joining_.offer(id));
  if (!talk.is_told && fabric_.common_ && !fabric_.informed_.contains(id)) {
    if (!whole_.kind.empty()) return whole_;
    const auto news = exchange_.whole_news();
    return whole_ = {fabric_.roster_.run(), kNewsLetter, header_of(news), news.payload.bytes};
  }
  if (talk.own.kind.empty()) make_task(talk);
  return talk.own;
}

void Talks::make_task(Talk& talk) {
  const auto task = exchange_.task_of(talk.client);
  talk.own = {fabric_.roster_.run(), kTaskLetter, header_of(task), task.payload.bytes};
  talk.type = type_of(task);
  talk.round = task.round + 1;
}

void Talks::hear(const wire::Arrival& arrival) {
  const auto talk = std::find_if(talks_.begin(), talks_.end(),
                                 [&](const Talk& one) { return one.open && one.waiting == arrival.message_id; });
  if (talk == talks_.end()) return;
  talk->waiting.clear();
  using Kind = wire::Arrival::Kind;
  if (arrival.kind == Kind::kLost) return;  // it may come back, and is asked again then
  if (arrival.kind != Kind::kReply) return lose(*talk, shown(arrival.reason, wire::kMostReason));
  try {
    hear(*talk, talk->incoming->letter(), arrival);
  } catch (const Unfit& unfit) {
    lose(*talk, unfit.what());
  }
}

/// \throws Unfit for what cannot be taken; anything else is our own trouble.
void Talks::hear(Talk& talk, const Letter& letter, const wire::Arrival& arrival) {
  require_fit(letter.run == fabric_.roster_.run(), "it answers about another run");
  require_fit(++talk.words <= kMostWords, concat("no reply in ", kMostWords, " letters"));
  if (letter.kind == kStrangerLetter) {
    fabric_.agreed_.erase(talk.client.id);
    fabric_.informed_.erase(talk.client.id);
  } else if (letter.kind == kAcceptanceLetter) {
    accept(talk, letter);
  } else if (letter.kind == kHeardLetter) {
    fabric_.informed_.insert(talk.client.id);
    if (talk.is_told) talk.open = false;
    if (talk.taken) talk.taken();
  } else if (letter.kind == kFarewellLetter && talk.own.kind == kFarewellLetter) {
    talk.open = false;
  } else {
    require_fit(letter.kind == kReplyLetter && !talk.own.kind.empty() && !talk.is_told, "nobody asked for its reply");
    finish(talk, letter, arrival);
  }
}

/// What was agreed when it joined stands.
void Talks::accept(const Talk& talk, const Letter& letter) {
  const auto& member = fabric_.roster_.members().at(talk.client.id);
  const auto acceptance = fitting([&] { return acceptance_in(letter); });
  require_fit(acceptance.client == member.client && acceptance.budget == member.budget &&
                  acceptance.examples == member.examples,
              concat("it comes back with budget ", acceptance.budget, " and ", acceptance.examples,
                     " examples, agreed on: ", member.budget, " and ", member.examples));
  fabric_.agreed_.insert(talk.client.id);
}

void Talks::finish(Talk& talk, const Letter& letter, const wire::Arrival& arrival) {
  auto reply = fitting([&] {
    auto message = from_parts(letter.header, letter.payload_N, talk.name);
    const auto* reply = std::get_if<Reply>(&message);
    EK_CHECK(reply && reply->client == talk.client.id, kData, talk.name, " sends no reply of client ", talk.client.id);
    if (exchange_.check) talk.moved = exchange_.check(talk.client, *reply);
    return std::move(std::get<Reply>(message));
  });
  report(talk, "reply", &arrival);
  talk.open = false;
  talk.own = {};
  ++replies_;
  exchange_.on_reply(std::move(reply));
}

void Talks::lose(Talk& talk, const std::string& why) {
  if (!talk.waiting.empty()) fabric_.grid_.forget(std::exchange(talk.waiting, {}));
  talk.open = false;
  fabric_.informed_.erase(talk.client.id);
  if (talk.is_told) return;
  report(talk, why, nullptr);
  EK_CHECK(exchange_.on_loss, kData, talk.name, ": ", why);
  exchange_.on_loss(talk.client.id, concat(talk.name, ": ", why));
}

void Talks::report(const Talk& talk, const std::string& outcome, const wire::Arrival* arrival) const {
  if (!fabric_.on_report) return;
  const auto size = [](const at::Tensor& payload_N) { return payload_N.defined() ? payload_N.numel() : 0; };
  fabric_.on_report({.round = talk.round,
                     .client = talk.client.id,
                     .node = talk.name,
                     .outcome = outcome,
                     .seconds = seconds_since(talk.sent),
                     .bytes_down = size(talk.own.payload_N),
                     .bytes_up = arrival && talk.incoming ? size(talk.incoming->letter().payload_N) : 0,
                     .moved = talk.moved,
                     .client_s = arrival ? arrival->client_s : 0});
}

/// A deadline holds as soon as enough have replied; without one, who is away is waited for as long as patience lasts.
void Talks::give_up_the_late() {
  const auto& terms = fabric_.terms_;
  const bool late = terms.deadline_s > 0 && seconds_since(begun_) > terms.deadline_s &&
                    replies_ >= std::min<int64_t>(terms.quorum, static_cast<int64_t>(talks_.size()));
  for (auto& talk : talks_) {
    if (!talk.open) continue;
    const bool may_be_late = talk.is_told || !talk.client.trains;  // a deadline is one of training
    const bool away = (terms.deadline_s == 0 || may_be_late) && seconds_since(talk.last_online) > terms.patience_s;
    const auto silent_since = talk.taken ? talk.last_online : begun_;
    if (late && !may_be_late)
      lose(talk, concat("no reply within ", terms.deadline_s, " s"));
    else if (away || (talk.is_told && seconds_since(silent_since) > kHearing_s))
      lose(talk, concat("its node was away for ", terms.patience_s, " s"));
  }
}

}  // namespace evenkeel
