#include "flower/server/coordinator.h"

#include <sys/resource.h>

#include <condition_variable>
#include <latch>
#include <mutex>
#include <thread>
#include <utility>

#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "flower/format/calls.h"
#include "flower/http/http_server.h"
#include "flower/server/allow_list_watch.h"
#include "flower/server/calls_at_once.h"
#include "flower/server/mailbox.h"
#include "flower/server/node_registry.h"

namespace evenkeel::flower {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(500);  // at the list of allowed keys
constexpr size_t kSmallBody = size_t{64} << 10, kBytesPerTreeNode = 72;

HttpReply protobuf(std::string body) { return {.body = std::move(body)}; }

std::string_view media_type(std::string_view content_type) {
  return content_type.substr(0, std::min(content_type.find_first_of("; "), content_type.size()));
}

/// Decodes the call in a body. \throws Refusal 400
template <typename Call>
Call decoded(std::string_view body) {
  try {
    return decode<Call>(body);
  } catch (const Error& error) {
    throw Refusal{.status = 400, .code = 1003, .detail = error.what()};
  }
}

void check(const CoordinatorOptions& options) {
  EK_CHECK(options.tls || options.insecure, kConfig,
           "serve: neither a certificate nor \"insecure\" is given: without TLS ", "everything travels in the clear");
  EK_CHECK(options.open || !options.allowed.empty(), kConfig, "serve: no key is allowed, and not any may join");
  EK_CHECK(options.threads >= 4 && options.threads <= 4096, kConfig, "serve: threads is ", options.threads,
           ", allowed: 4 to 4096");
  EK_CHECK(options.port >= 0 && options.port < 65'536, kConfig, "serve: the port is ", options.port);
  EK_CHECK(!options.fab || (!options.fab_id.empty() && !options.fab_version.empty()), kConfig,
           "serve: an app bundle without its id and version");
  EK_CHECK(!options.folder.empty(), kConfig, "serve: no folder for what outlives the process");
}

}  // namespace

struct Coordinator::Parts {
  explicit Parts(CoordinatorOptions given)
      : options((check(given), std::move(given))), registry(options), mailbox(registry.run_id(), options) {
    if (options.fab) fab = read_file(*options.fab, size_t{16} << 20);
    fab_hash = sha256(fab);
    server = std::make_unique<HttpServer>(ServerOptions{.host = options.host,
                                                        .port = options.port,
                                                        .tls = options.tls,
                                                        .threads = options.threads,
                                                        .limits = options.node_limits},
                                          [this](const HttpRequest& request) { return answer(request); });
    listening.count_down();
    if (!options.allow_file.empty()) watching = std::jthread([this](const std::stop_token& stop) { watch_list(stop); });
  }

  // ---- the list of allowed keys

  void watch_list(const std::stop_token& stop) {
    AllowListWatch watch(options.allow_file);
    auto in_force = options.allowed;
    std::unique_lock lock(watch_mutex);
    while (!watch_stopped.wait_for(lock, stop, kBetweenLooks, [] { return false; }) && !stop.stop_requested())
      if (auto keys = watch.look(); keys && *keys != in_force) {
        allow(*keys);
        in_force = std::move(*keys);
      }
  }

  /// Ends the open messages of nodes whose keys are not in the new list.
  void allow(const std::vector<AllowedKey>& keys) {
    const std::lock_guard guard(losing_mutex);
    const auto removed = registry.allow(keys);
    log::info("[serve] ", options.allow_file.string(), " was read again: ", keys.size(), " keys may join");
    for (const uint64_t node : removed) {
      log::warning("[serve] node ", shown(registry.name(node)), ": its key was removed from ",
                   options.allow_file.string());
      mailbox.lose(node, "its key was removed from the list of keys");
    }
  }

  HttpReply answer(const HttpRequest& request) {
    if (request.method == "GET") return page(request.path);
    if (request.method != "POST") throw Refusal{.status = 405, .detail = "calls are POST", .close = true};
    const auto route = routes().find(request.path);
    if (route == routes().end()) throw Refusal{.status = 404, .detail = "no such call", .close = true};
    const auto verdict =
        verifier.check(request.signature, [this](const PublicKey& key) { return registry.accepts(key); });
    if (!verdict.key) throw refused_stranger(request, verdict.refusal);
    if (media_type(request.content_type) != "application/protobuf" ||
        (!request.content_encoding.empty() && request.content_encoding != "identity"))
      throw Refusal{
          .status = 415, .code = 1002, .detail = "a body that is not plain application/protobuf", .close = true};
    const auto node = registry.id_of(*verdict.key);
    const CallsAtOnce::Call one(calls_at_once, node.value_or(0));
    if (!one.allowed()) throw refused_crowd(node);
    return route->second(*this, Call{.request = request, .key = *verdict.key, .node = node});
  }

  /// Refuses a call of a node that has as many calls under way as it may have: it may come again.
  Refusal refused_crowd(const std::optional<uint64_t>& node) {
    const auto why = concat("more than ", calls_at_once.most(), " calls at a time");
    if (node) registry.record_refusal(*node, why);
    return {.status = 503, .detail = why, .close = true};
  }

  Refusal refused_stranger(const HttpRequest& request, const std::string& why) {
    ++strangers;
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(told_mutex);
    if (now - told > std::chrono::seconds(10)) {
      told = now;
      log::warning("[serve] ", request.peer, " is refused: ", why, " (", strangers.load(), " such calls so far)");
    }
    return {.status = 401, .detail = why, .close = true};
  }

  struct Call {
    const HttpRequest& request;
    const PublicKey& key;
    std::optional<uint64_t> node;
  };
  using Route = HttpReply (*)(Parts&, const Call&);

  static const std::map<std::string, Route, std::less<>>& routes() {
    static const std::map<std::string, Route, std::less<>> kRoutes = {
        {std::string(path::kRegister), [](Parts& p, const Call& c) { return p.do_register(c); }},
        {std::string(path::kActivate), [](Parts& p, const Call& c) { return p.do_activate(c); }},
        {std::string(path::kDeactivate), [](Parts& p, const Call& c) { return p.deactivate(c, false); }},
        {std::string(path::kUnregister), [](Parts& p, const Call& c) { return p.deactivate(c, true); }},
        {std::string(path::kHeartbeat), [](Parts& p, const Call& c) { return p.heartbeat(c); }},
        {std::string(path::kPullMessages), [](Parts& p, const Call& c) { return p.pull_messages(c); }},
        {std::string(path::kPushMessages), [](Parts& p, const Call& c) { return p.push_messages(c); }},
        {std::string(path::kPullObject), [](Parts& p, const Call& c) { return p.pull_object(c); }},
        {std::string(path::kPushObject), [](Parts& p, const Call& c) { return p.push_object(c); }},
        {std::string(path::kConfirm), [](Parts& p, const Call& c) { return p.confirm(c); }},
        {std::string(path::kGetRun), [](Parts& p, const Call& c) { return p.get_run(c); }},
        {std::string(path::kGetFab), [](Parts& p, const Call& c) { return p.get_fab(c); }}};
    return kRoutes;
  }

  // ---- joining

  /// Checks that the key in a body is the one that signed the call. \throws Refusal
  static void check_key(const Call& call, const std::string& pem) {
    try {
      if (PublicKey::from_pem(pem, "the body") == call.key) return;
    } catch (const Error&) {  // is as wrong as another key
    }
    throw Refusal{.status = 401, .detail = "the key of the body is not the one that signed the call"};
  }

  HttpReply do_register(const Call& call) {
    check_key(call, decoded<RegisterRequest>(call.request.body(kSmallBody)).public_key);
    return protobuf(encode(NodeId{registry.add(call.key)}));
  }

  HttpReply do_activate(const Call& call) {
    const auto request = decoded<ActivateRequest>(call.request.body(kSmallBody));
    check_key(call, request.public_key);
    if (!call.node) throw Refusal{.status = 412, .code = 2004, .detail = "the key is not registered"};
    // What was sent to the process before is lost before a message to the new one can be sent.
    const auto lose = [&] { mailbox.lose(*call.node, "the node began anew"); };
    recorded(call, [&] { registry.activate(*call.node, request.heartbeat_s, call.request.signature.instance, lose); });
    log::info("[serve] node ", shown(registry.name(*call.node)), " has joined");
    return protobuf(encode(NodeId{*call.node}));
  }

  /// Returns the node that sent the call. \throws Refusal 401 if `claimed` is the id of another node, 429 for too many
  /// calls
  uint64_t caller(const Call& call, uint64_t claimed) {
    if (!call.node || *call.node != claimed) {
      if (call.node) registry.record_refusal(*call.node, concat("a call in the name of node ", claimed));
      throw Refusal{.status = 401, .detail = "the node id is not that of the key"};
    }
    if (!registry.charge(claimed)) {
      registry.record_refusal(claimed, "more calls than a node may make");
      throw Refusal{.status = 429, .detail = "more calls than a node may make"};
    }
    return claimed;
  }

  /// Does `work`. If it refuses the call, that is recorded for the node, with the address of the caller.
  template <typename Work>
  void recorded(const Call& call, const Work& work) {
    try {
      work();
    } catch (const Refusal& refusal) {
      registry.record_refusal(*call.node, concat(refusal.detail, "; the call was from ", call.request.peer));
      throw;
    }
  }

  uint64_t present(const Call& call, uint64_t claimed) {
    const uint64_t node = caller(call, claimed);
    recorded(call, [&] { registry.record_call(node, call.request.program, call.request.signature.instance); });
    return node;
  }

  HttpReply deactivate(const Call& call, bool unregister) {
    const uint64_t node = caller(call, decoded<NodeId>(call.request.body(kSmallBody)).node);
    const std::string name = registry.name(node);
    if (unregister)
      registry.remove(node);
    else
      registry.sign_off(node);
    mailbox.lose(node, "the node signed off");
    if (!unregister) log::info("[serve] node ", shown(name), " has signed off");
    return protobuf("");
  }

  HttpReply heartbeat(const Call& call) {
    const auto request = decoded<HeartbeatRequest>(call.request.body(kSmallBody));
    registry.set_heartbeat_interval(present(call, request.node), request.heartbeat_s);
    return protobuf(encode(HeartbeatResponse{true}));
  }

  // ---- messages

  HttpReply pull_messages(const Call& call) {
    const uint64_t node = present(call, decoded<PullMessagesRequest>(call.request.body(kSmallBody)).node);
    if (call.request.program.starts_with("evenkeel ")) mailbox.lose_unanswered(node);
    return protobuf(encode(mailbox.pull(node)));
  }

  HttpReply push_messages(const Call& call) {
    const auto request =
        decoded<PushMessagesRequest>(body_of(call, options.limits.objects * kBytesPerTreeNode + kSmallBody));
    const uint64_t node = present(call, request.node);
    const auto answer = mailbox.push(node, request);
    if (!answer.refusal.empty()) registry.record_refusal(node, answer.refusal);
    HttpReply reply = protobuf(encode(answer.response));
    reply.reason = answer.refusal;
    return reply;
  }

  /// Reads a body. A body that is too long or too slow is counted as a refused call of the node.
  std::string body_of(const Call& call, size_t most) {
    try {
      return call.request.body(most);
    } catch (const Refusal& refusal) {
      if (call.node) registry.record_refusal(*call.node, refusal.detail);
      throw;
    }
  }

  HttpReply pull_object(const Call& call) {
    const auto request = decoded<ObjectRequest>(call.request.body(kSmallBody));
    const uint64_t node = present(call, request.node);
    const auto found = mailbox.find(node, request.run_id, request.object_id);
    HttpReply reply =
        protobuf(encode(PullObjectResponse{.found = found.has_value(), .available = found && found->object}));
    if (!found || !found->object) return reply;
    registry.uncharge(node);
    reply.body += object_field(kPulledField, found->object->bytes());
    reply.body += found->object->head;
    reply.pieces = found->object->pieces;
    reply.owner = found->owner;
    reply.unwanted = found->given_up;
    return reply;
  }

  HttpReply push_object(const Call& call) {
    const std::string body = body_of(call, options.limits.chunk + kSmallBody);
    const auto request = decoded<PushObjectRequest>(body);
    const uint64_t node = present(call, request.node);
    const auto result = mailbox.push_object(node, request);
    if (result.stored)
      registry.uncharge(node);
    else
      registry.record_refusal(node, result.refusal);
    HttpReply reply = protobuf(encode(PushObjectResponse{result.stored}));
    reply.reason = result.refusal;
    return reply;
  }

  HttpReply confirm(const Call& call) {
    const auto request = decoded<ConfirmRequest>(call.request.body(kSmallBody));
    mailbox.confirm(present(call, request.node), request);
    return protobuf("");
  }

  // ---- stock nodes

  HttpReply get_run(const Call& call) {
    const auto request = decoded<GetRunRequest>(call.request.body(kSmallBody));
    present(call, request.node);
    if (fab.empty() || request.run_id != registry.run_id())
      throw Refusal{.status = 403, .code = 2008, .detail = "no app is served here"};
    return protobuf(encode(RunInfo{.run_id = registry.run_id(),
                                   .fab_id = options.fab_id,
                                   .fab_version = options.fab_version,
                                   .fab_hash = fab_hash,
                                   .started_at = started,
                                   .running = !mailbox.ended()}));
  }

  HttpReply get_fab(const Call& call) {
    const auto request = decoded<GetFabRequest>(call.request.body(kSmallBody));
    present(call, request.node);
    if (fab.empty() || request.hash != fab_hash)
      throw Refusal{.status = 403, .code = 2009, .detail = "no such app is served here"};
    return protobuf(encode(FabInfo{.hash = fab_hash, .content = fab}));
  }

  // ---- pages

  HttpReply page(const std::string& path) {
    if (path == "/health" || path == "/livez") return {.type = "text/plain"};
    if (path == "/readyz") return ready();
    if (path == "/metrics") return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics()};
    throw Refusal{.status = 404, .detail = "known: /health, /livez, /readyz, /metrics", .close = true};
  }

  HttpReply ready() {
    const auto reason = options.not_ready ? options.not_ready() : std::string();
    return {.status = reason.empty() ? 200 : 503, .type = "text/plain", .body = reason};
  }

  std::string metrics() {
    listening.wait();  // the first call may come before the constructor of `server` has returned
    const auto nodes = registry.nodes();
    const auto online = std::count_if(nodes.begin(), nodes.end(), [](const NodeInfo& node) { return node.online; });
    uint64_t refused = 0;
    for (const auto& node : nodes) refused += node.refused;
    const auto counts = mailbox.counts();
    const auto& traffic = server->counts();
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    std::string text;
    const auto line = [&](std::string_view name, std::string_view kind, std::string_view help, auto value) {
      text += concat("# HELP evenkeel_", name, " ", help, "\n# TYPE evenkeel_", name, " ", kind, "\nevenkeel_", name,
                     " ", value, "\n");
    };
    line("nodes", "gauge", "Nodes that are registered.", nodes.size());
    line("nodes_online", "gauge", "Nodes with a heartbeat in time.", online);
    line("messages_open", "gauge", "Messages without an answer.", counts.open);
    line("messages_sent_total", "counter", "Messages put into mailboxes.", counts.sent);
    line("replies_total", "counter", "Replies that arrived whole.", counts.replied);
    line("replies_failed_total", "counter", "Error replies.", counts.failed);
    line("replies_refused_total", "counter", "Replies that were not fit to be taken.", counts.refused);
    line("messages_lost_total", "counter", "Messages whose node went away.", counts.lost + counts.expired);
    line("calls_refused_total", "counter", "Calls of known nodes that were refused.", refused);
    line("strangers_refused_total", "counter", "Calls without a signature that is accepted.", strangers.load());
    line("connections_total", "counter", "Connections.", traffic.connections.load());
    line("connections_cut_off_total", "counter", "Connections that were too slow, or no HTTP.", traffic.cut_off.load());
    line("requests_total", "counter", "Requests.", traffic.requests.load());
    line("received_bytes_total", "counter", "Bytes received.", traffic.bytes_in.load());
    line("sent_bytes_total", "counter", "Bytes sent.", traffic.bytes_out.load());
    line("peak_memory_bytes", "gauge", "Most memory that the process held.",
         static_cast<uint64_t>(usage.ru_maxrss) * 1024);
    return text + (options.metrics ? options.metrics() : "");
  }

  // ---- waiting

  void sweep() {
    mailbox.expire();
    const std::lock_guard guard(losing_mutex);
    for (const uint64_t node : mailbox.addressees())
      if (!registry.online(node)) mailbox.lose(node, "the node is offline");
  }

  const CoordinatorOptions options;
  std::mutex losing_mutex;  // a node whose key is removed is offline: the removal is the reason for what it loses
  Registry registry;
  Mailbox mailbox;
  Verifier verifier{};
  std::string fab{}, fab_hash{};
  const std::string started = utc_now();
  // A node that works uses two to six connections.
  CallsAtOnce calls_at_once{std::max<size_t>(6, static_cast<size_t>(options.threads) / 4)};
  std::atomic<uint64_t> strangers = 0;
  std::mutex told_mutex{};
  std::chrono::steady_clock::time_point told{};
  std::latch listening{1};               // open when `server` may be used
  std::unique_ptr<HttpServer> server{};  // ends before what it uses
  std::mutex watch_mutex{};
  std::condition_variable_any watch_stopped{};
  std::jthread watching{};
};

Coordinator::Coordinator(CoordinatorOptions options) : parts_(std::make_unique<Parts>(std::move(options))) {}
Coordinator::~Coordinator() = default;
int Coordinator::port() const { return parts_->server->port(); }
uint64_t Coordinator::run_id() const { return parts_->registry.run_id(); }
std::vector<NodeInfo> Coordinator::nodes() const { return parts_->registry.nodes(); }

bool Coordinator::admits(const std::string& fingerprint) const {
  return parts_->registry.accepts_fingerprint(fingerprint);
}

std::string Coordinator::send(uint64_t node, const Content& content, SendOptions options) {
  return parts_->mailbox.send(node, content, std::move(options));
}

void Coordinator::forget(const std::string& message_id) { parts_->mailbox.forget(message_id); }

std::optional<Arrival> Coordinator::wait(std::chrono::steady_clock::time_point deadline) {
  return parts_->mailbox.wait(deadline, [this] { parts_->sweep(); });
}

void Coordinator::end_run() { parts_->mailbox.end_run(); }

}  // namespace evenkeel::flower
