#include "flower/server/mailbox.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "base/plain/clock.h"
#include "base/plain/hex.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "flower/http/http_server.h"

namespace evenkeel::flower {
namespace {

constexpr double kTtlSlack = 0.1;
constexpr auto kRedelivery = std::chrono::seconds(10);
constexpr auto kSweep = std::chrono::milliseconds(100);

/// Returns a random token of 36 characters, as in Flower.
std::string new_token() {
  std::array<unsigned char, 16> bytes{};
  EK_CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1, kInternal, "no random bytes");
  std::string token = to_hex(bytes);
  for (const size_t at : std::array<size_t, 4>{8, 13, 18, 23}) token.insert(at, 1, '-');
  return token;
}

/// Returns what a node is told of an error: no path and no defect of this machine.
std::string told_to_node(const Error& error) {
  const bool is_own = error.kind() == kIo || error.kind() == kInternal;
  return is_own ? "the server could not store it; the server's log says why" : error.what();
}

/// Returns the outcome of a message whose reply could not be taken. kInternal counts as an invalid reply: otherwise a
/// node that finds a defect could end the server.
Arrival not_taken(const Error& error) {
  if (error.kind() == kIo)
    return {.kind = Arrival::Kind::kFailed, .message_id = {}, .reason = error.what(), .failure = error};
  return {.kind = Arrival::Kind::kRefused, .message_id = {}, .reason = error.what()};
}

}  // namespace

Mailbox::Mailbox(uint64_t run_id, const CoordinatorOptions& options)
    : run_id_(run_id),
      limits_(options.limits),
      node_limits_(options.node_limits),
      lease_s_(options.lease_s),
      folder_(options.folder) {}

// ---- the server's side

std::string Mailbox::send(uint64_t node, const Content& content, SendOptions options) {
  const Metadata metadata{.run_id = run_id_,
                          .src_node = 1,
                          .dst_node = node,
                          .group = options.group,
                          .ttl = options.ttl_s,
                          .type = options.type,
                          .created_at = now_seconds()};
  auto parcel = std::make_shared<const Parcel>(metadata, content);
  auto sent = std::make_shared<Sent>();
  sent->node = node;
  sent->metadata = parcel->metadata();
  sent->parcel = std::move(parcel);
  sent->place = std::move(options.place);
  sent->expires_at = Clock::now() + steady_duration(std::min(options.ttl_s, 1e8));
  const std::lock_guard lock(mutex_);
  auto& open = of_node_[node];
  EK_CHECK(open.size() < node_limits_.open_messages, kData, "node ", node, " has ", open.size(),
           " messages that it has not answered");
  const std::string id = sent->metadata.message_id;
  open.insert(id);
  messages_.emplace(id, std::move(sent));
  ++counts_.sent;
  return id;
}

void Mailbox::forget(const std::string& message_id) {
  std::unique_lock lock(mutex_);
  std::shared_ptr<Sent> sent;
  const auto arrival = std::find_if(arrivals_.begin(), arrivals_.end(),
                                    [&](const auto& entry) { return entry.first.message_id == message_id; });
  if (arrival != arrivals_.end()) {
    sent = arrival->second;
    arrivals_.erase(arrival);
  } else if (const auto entry = messages_.find(message_id); entry != messages_.end()) {
    sent = entry->second;
    of_node_[sent->node].erase(message_id);
    messages_.erase(entry);
  }
  if (!sent) return;
  sent->given_up = true;
  changed_.wait(lock, [&] { return sent->in_use == 0; });
}

/// Removes a message and reports its outcome. mutex_ must be held.
void Mailbox::finish(const std::string& message_id, Arrival arrival) {
  const auto entry = messages_.find(message_id);
  if (entry == messages_.end()) return;
  const auto sent = entry->second;
  arrival.node = sent->node;
  arrival.message_id = message_id;
  if (sent->reply) {
    arrival.bytes = sent->reply->assembly->bytes();
    arrival.client_s = sent->reply->client_s;
  }
  sent->given_up = true;
  of_node_[sent->node].erase(message_id);
  messages_.erase(entry);
  using enum Arrival::Kind;
  if (arrival.kind == kReply || arrival.kind == kError)
    last_replies_[sent->node] = {sent->reply->token, sent->reply->assembly->ids()};
  counts_.replied += arrival.kind == kReply;
  counts_.failed += arrival.kind == kError;
  counts_.refused += arrival.kind == kRefused || arrival.kind == kFailed;
  counts_.lost += arrival.kind == kLost;
  counts_.expired += arrival.kind == kExpired;
  arrivals_.emplace_back(std::move(arrival), sent);
  changed_.notify_all();
}

std::optional<Arrival> Mailbox::wait(Clock::time_point deadline, const std::function<void()>& sweep) {
  while (true) {
    sweep();
    std::unique_lock lock(mutex_);
    const auto until = std::min(deadline, Clock::now() + kSweep);
    // The buffers of a message may be freed when it is reported, so no call may still use them.
    const auto ready = [this] {
      return std::find_if(arrivals_.begin(), arrivals_.end(),
                          [](const auto& entry) { return entry.second->in_use == 0; });
    };
    changed_.wait_until(lock, until, [&] { return ready() != arrivals_.end(); });
    if (const auto first = ready(); first != arrivals_.end()) {
      Arrival arrival = std::move(first->first);
      arrivals_.erase(first);
      return arrival;
    }
    if (Clock::now() >= deadline) return {};
  }
}

std::set<uint64_t> Mailbox::addressees() const {
  const std::lock_guard lock(mutex_);
  std::set<uint64_t> nodes;
  for (const auto& [node, open] : of_node_)
    if (!open.empty()) nodes.insert(node);
  return nodes;
}

void Mailbox::lose(uint64_t node, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const auto open = of_node_[node];
  for (const auto& id : open) finish(id, {.kind = Arrival::Kind::kLost, .message_id = {}, .reason = why, .left = true});
}

void Mailbox::lose_unanswered(uint64_t node) {
  const std::lock_guard lock(mutex_);
  const auto open = of_node_[node];
  for (const auto& id : open)
    if (messages_.at(id)->confirmed)
      finish(id, {.kind = Arrival::Kind::kLost, .message_id = {}, .reason = "the node asks for work without a reply"});
}

void Mailbox::expire() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::vector<std::pair<std::string, Arrival>> over;
  for (const auto& [id, sent] : messages_) {
    if (now > sent->expires_at)
      over.emplace_back(id, Arrival{.kind = Arrival::Kind::kExpired, .message_id = {}, .reason = "its time is over"});
    else if (sent->reply && now > sent->reply->lease_until)
      over.emplace_back(id, Arrival{.kind = Arrival::Kind::kLost,
                                    .message_id = {},
                                    .reason = concat("its reply came no further for ", lease_s_, " s")});
  }
  for (auto& [id, arrival] : over) finish(id, std::move(arrival));
}

void Mailbox::end_run() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

bool Mailbox::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

Mailbox::Counts Mailbox::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.open = messages_.size();
  return counts;
}

// ---- the nodes' side

void Mailbox::check_run(uint64_t run_id) const {
  if (run_id != run_id_ || ended_) throw Refusal{.status = 403, .code = 2007, .detail = "the run is not running"};
}

Mailbox::Sent* Mailbox::owned(uint64_t node, const std::string& message_id) {
  const auto entry = messages_.find(message_id);
  return entry == messages_.end() || entry->second->node != node ? nullptr : entry->second.get();
}

std::shared_ptr<const void> Mailbox::use(const std::shared_ptr<Sent>& sent) {
  ++sent->in_use;
  return {sent.get(), [this, sent](const void*) {
            const std::lock_guard lock(mutex_);
            --sent->in_use;
            changed_.notify_all();
          }};
}

PullMessagesResponse Mailbox::pull(uint64_t node) {
  const std::lock_guard lock(mutex_);
  if (ended_) return {};
  const auto now = Clock::now();
  Sent* next = nullptr;
  for (const auto& id : of_node_[node]) {
    Sent* sent = owned(node, id);
    // A message that was handed out but whose objects were not pulled was lost in transit.
    const bool again = sent->delivered_at && !sent->confirmed && now - sent->touched_at > kRedelivery;
    if ((!sent->delivered_at || again) && (!next || sent->metadata.created_at < next->metadata.created_at)) next = sent;
  }
  if (!next) return {};
  next->touched_at = now;
  if (!next->delivered_at) next->delivered_at = now;
  return {CallMessage{.metadata = next->metadata, .has_content = true, .tree = next->parcel->tree()}};
}

std::optional<Mailbox::Borrowed> Mailbox::find(uint64_t node, uint64_t run_id, const std::string& object_id) {
  const std::lock_guard lock(mutex_);
  check_run(run_id);
  for (const auto& id : of_node_[node]) {
    const auto& sent = messages_.at(id);
    if (sent->reply && sent->reply->root == object_id) return Borrowed{};
    if (!sent->delivered_at || !sent->parcel) continue;
    if (const Object* object = sent->parcel->find(object_id)) {
      sent->touched_at = Clock::now();
      const auto used = use(sent);
      // The parcel must outlive the message's confirmation while this object is being sent.
      auto both =
          std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const Parcel>>>(used, sent->parcel);
      return Borrowed{.object = object, .owner = std::move(both), .given_up = [sent] { return sent->given_up.load(); }};
    }
  }
  return {};
}

void Mailbox::confirm(uint64_t node, const ConfirmRequest& request) {
  std::shared_ptr<const Parcel> done;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  check_run(request.run_id);
  if (Sent* sent = owned(node, request.message_id); sent && sent->delivered_at) {
    sent->confirmed = true;
    done.swap(sent->parcel);
  }
}

/// Returns why a reply's metadata is invalid; empty if it is valid.
std::string Mailbox::why_not(const Sent* sent, uint64_t node, const Metadata& reply) const {
  if (!sent || !sent->delivered_at)
    return concat(
        "a reply to message ", shown(reply.reply_to, 80),
        ", which is not waited for: it was asked before this server began again, came too late, or is a second "
        "one. Nothing is lost: who still owes a reply is asked again");
  if (reply.src_node != node) return concat("a reply of node ", reply.src_node);
  const double most = sent->metadata.ttl - (reply.created_at - sent->metadata.created_at) + kTtlSlack;
  if (!(reply.ttl <= most)) return concat("a reply that wants to live for ", reply.ttl, " s, allowed: ", most);
  return {};
}

Mailbox::Answered Mailbox::push(uint64_t node, const PushMessagesRequest& request) {
  const std::lock_guard lock(mutex_);
  if (!request.message) return {};
  const auto& [metadata, has_content, failure, tree] = *request.message;
  check_run(metadata.run_id);
  if (!has_content && !failure)
    throw Refusal{.status = 400, .code = 1003, .detail = "a reply with neither content nor error"};
  Answered answer{.response = {.message_id = metadata.message_id}};
  Sent* sent = owned(node, metadata.reply_to);
  answer.refusal = why_not(sent, node, metadata);
  if (answer.refusal.empty() && tree.id != metadata.message_id) answer.refusal = "a reply whose id is not its object's";
  if (answer.refusal.empty() && sent->reply && sent->reply->root != tree.id)
    answer.refusal = "a second reply while the first is on its way";
  if (!answer.refusal.empty()) return answer;
  const auto now = Clock::now();
  if (!sent->reply) {
    try {
      const double client_s = std::chrono::duration<double>(now - *sent->delivered_at).count();
      auto assembly = std::make_shared<Assembly>(tree, limits_, sent->place, folder_ / "spool", node_limits_.spool);
      sent->reply = Reply{.root = tree.id, .token = {}, .assembly = std::move(assembly), .client_s = client_s};
    } catch (const Error& error) {
      answer.refusal = told_to_node(error);
      finish(metadata.reply_to, not_taken(error));
      return answer;
    }
  }
  sent->reply->token = new_token();
  sent->reply->lease_until = now + steady_duration(lease_s_);
  answer.response.token = sent->reply->token;
  for (const auto& id : sent->reply->assembly->ids())
    if (!sent->reply->assembly->has(id)) answer.response.objects_to_push.push_back(id);
  return answer;
}

/// Finds the message with a pending reply to which an object belongs, by its token or, without a token, by its id.
Mailbox::Messages::iterator Mailbox::replying(uint64_t node, const PushObjectRequest& request) {
  for (const auto& id : of_node_[node]) {
    const auto entry = messages_.find(id);
    const auto& reply = entry->second->reply;
    if (!reply || Clock::now() > reply->lease_until) continue;
    if (!request.token.empty() && request.token != reply->token) continue;
    if (reply->assembly->announces(request.object_id)) return entry;
  }
  return messages_.end();
}

bool Mailbox::is_of_last_reply(uint64_t node, const PushObjectRequest& request) const {
  const auto known = last_replies_.find(node);
  if (known == last_replies_.end()) return false;
  const auto& [token, objects] = known->second;
  return (request.token.empty() || request.token == token) &&
         std::find(objects.begin(), objects.end(), request.object_id) != objects.end();
}

Mailbox::Stored Mailbox::push_object(uint64_t node, const PushObjectRequest& request) {
  std::shared_ptr<Assembly> assembly;
  std::string message_id;
  std::shared_ptr<const void> used;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = replying(node, request);
    if (entry == messages_.end() && is_of_last_reply(node, request)) return {.stored = true};
    check_run(request.run_id);
    if (entry == messages_.end())
      return {.refusal = "an object that no reply on its way has, or too late for its lease"};
    message_id = entry->first;
    assembly = entry->second->reply->assembly;
    used = use(entry->second);
  }
  Stored result{.stored = true};
  std::optional<Arrival> end;
  try {
    assembly->take(request.object_id, request.content);
  } catch (const Error& error) {
    result = {.stored = false, .refusal = told_to_node(error)};
    if (assembly->failed()) end = not_taken(error);
  }
  const bool complete = assembly->complete();
  const std::lock_guard lock(mutex_);
  const auto entry = messages_.find(message_id);
  if (entry == messages_.end()) return result;
  if (entry->second->reply) entry->second->reply->lease_until = Clock::now() + steady_duration(lease_s_);
  if (end) finish(message_id, std::move(*end));
  if (complete && assembly->failure())
    finish(message_id, {.kind = Arrival::Kind::kError,
                        .message_id = {},
                        .code = assembly->failure()->code,
                        .reason = shown(assembly->failure()->reason, kMostReason)});
  else if (complete)
    finish(
        message_id,
        {.kind = Arrival::Kind::kReply, .message_id = {}, .content = assembly->content(), .owner = assembly->owner()});
  return result;
}

}  // namespace evenkeel::flower
