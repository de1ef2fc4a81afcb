#include "flower/node/node_link.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <set>
#include <thread>
#include <utility>

#include "base/plain/clock.h"
#include "base/plain/dead_parts.h"
#include "base/plain/file_lock.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/json.h"
#include "base/plain/log.h"
#include "base/plain/os_error.h"
#include "base/plain/sealed.h"
#include "base/plain/text.h"
#include "flower/format/calls.h"
#include "flower/format/objects.h"
#include "flower/node/node_calls.h"
#include "flower/server/assembly.h"

namespace evenkeel::flower {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr double kHeartbeatTimeout = 5, kSignOffPatience = 10, kSignOffTimeout = 2;
constexpr size_t kMostAnswer = size_t{64} << 10;  // limit of an answer to a heartbeat
// Codes of Flower's API (ApiErrorCode of flwr 1.41): nodes are registered by a list of keys only; the key is registered
// already; the node cannot be activated, because its key is unknown or it is online.
constexpr int kRegistrationDisabled = 2001, kKeyInUse = 23, kActivationFailed = 2004;
constexpr int kMostDamaged = 3;  // times that an object may be damaged on the way
constexpr uint64_t kMostSpooled = uint64_t{1} << 30;

/// The state that a node stores in its folder.
struct Remembered {
  uint64_t node = 0;
  bool registered = false;  ///< the node registered itself
  /// True: it was stored in this very folder. A copy of the folder on another machine does not prove that the process
  /// that stored it has ended.
  bool is_own = true;
};

/// Returns what tells a folder from its copies: inode and time of creation, 0 where the file system does not know it.
std::string mark_of(const fs::path& folder) {
  struct statx status {};
  EK_CHECK(::statx(AT_FDCWD, folder.c_str(), 0, STATX_INO | STATX_BTIME, &status) == 0, kIo, folder.string(), ": ",
           os_error_text(errno));
  return concat(status.stx_ino, '-', status.stx_btime.tv_sec, '.', status.stx_btime.tv_nsec);
}

fs::path memory_file(const NodeOptions& options) { return options.folder / "link.json"; }

std::optional<Remembered> remembered(const NodeOptions& options) {
  const auto file = memory_file(options);
  if (!path_exists(file)) return {};
  try {
    const Json json = read_sealed(file);
    const JsonView view(json, file.string());
    if (view.at("server").string() != options.server.text()) return {};
    const auto node = parse_number<uint64_t>(view.at("node").string());
    view.at("node").require(node.has_value(), " is \"", shown(view.at("node").string()), "\", expected a number");
    return Remembered{.node = *node,
                      .registered = view.at("registered").flag(),
                      .is_own = view.at("folder").string() == mark_of(options.folder)};
  } catch (const std::exception& error) {
    log::warning("[node] ", file.string(), " is passed over: ", error.what());
    return {};
  }
}

void remember(const NodeOptions& options, const Remembered& state) {
  write_sealed(memory_file(options), {{"server", options.server.text()},
                                      {"node", std::to_string(state.node)},
                                      {"registered", state.registered},
                                      {"folder", mark_of(options.folder)}});
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Runs `work(0)` to `work(count - 1)` on up to `threads` threads. `thread` is the index of the thread.
/// \throws the first exception of `work`
void side_by_side(size_t count, size_t threads, const std::function<void(size_t index, size_t thread)>& work) {
  std::atomic<size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&](size_t thread) {
    try {
      for (size_t i; (i = next++) < count;) work(i, thread);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  try {
    for (size_t thread = 1; thread < std::min(threads, count); ++thread) others.emplace_back(run, thread);
  } catch (const std::system_error& error) {
    next = count;  // what has started ends soon
    throw os_error(error);
  }
  run(0);
  others.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

struct NodeLink::Parts {
  explicit Parts(NodeOptions given) : options(std::move(given)), calls(options) {
    EK_CHECK(!options.folder.empty(), kInternal, "node: no folder is given");
    EK_CHECK(options.heartbeat_s >= 10 && options.heartbeat_s <= 1800, kConfig, "node: heartbeat_s is ",
             options.heartbeat_s, ", allowed: 10 to 1800");
  }

  /// Throws for a failed call about a message. Status 401 says that the server does not know the node any more: the run
  /// that the message belongs to is over (RunOver), and the node joins again at its next poll.
  [[noreturn]] void give_up_message(const Answer& answer, std::string_view path) const {
    if (answer.status == 401) throw RunOver();
    calls.give_up(answer, path);
  }

  // ---- join

  void join() {
    make_folders(options.folder);
    if (!lock) lock.emplace(options.folder / "link.lock", concat("the node's folder ", options.folder.string()));
    remove_dead_parts_of(memory_file(options));
    const auto before = remembered(options);
    state = before.value_or(Remembered{});
    if (before && before->is_own)
      // The lock says that the previous process has ended. It would count as online for another minute.
      calls.call(path::kDeactivate, encode(NodeId{before->node}));
    const std::string pem = calls.public_key().pem();
    const Answer registered = calls.call(path::kRegister, encode(RegisterRequest{pem}));
    if (registered.ok())
      state.registered = true;
    else if (registered.status != 412 || (registered.code != kRegistrationDisabled && registered.code != kKeyInUse))
      calls.give_up(registered, path::kRegister);
    activate(pem, before.has_value());
    remember(options, state);
    calls.joined();
    if (!beating.joinable()) beating = std::jthread([this](const std::stop_token& stop) { beat(stop); });
  }

  void activate(const std::string& pem, bool patient) {
    bool warned = false;
    const auto patience = SteadyClock::now() + std::chrono::duration<double>(2 * options.heartbeat_s + 5);
    while (true) {
      int tries = 0;
      const auto request = encode(ActivateRequest{pem, options.heartbeat_s});
      const Answer answer = calls.call(path::kActivate, request, {}, 0, &tries);
      patient = patient || tries > 1;  // the server may have heard a try whose answer was lost
      if (answer.ok()) {
        state.node = decode<NodeId>(answer.body).node;
        return;
      }
      if (answer.code != kActivationFailed) calls.give_up(answer, path::kActivate);
      if (!std::exchange(warned, true) && patient)
        log::warning("[node] ", options.server.text(),
                     " has a node with this key online: a process on another machine, ",
                     "or one that has ended; trying for ", 2 * options.heartbeat_s + 5, " s");
      EK_CHECK(patient && SteadyClock::now() < patience, kConfig, options.server.text(), " does not know the key ",
               calls.public_key().fingerprint(),
               ", or has a node with it online already (one that died counts as online for up to ",
               2 * options.heartbeat_s, " s)");
      calls.sleep(2);
    }
  }

  void beat(const std::stop_token& stop) {
    HttpClient client(options.server, kHeartbeatTimeout, kMostAnswer);
    std::unique_lock lock(beat_mutex);
    double pause = options.heartbeat_s * 2 / 3;
    while (!beat_stopped.wait_for(lock, stop, std::chrono::duration<double>(pause), [] { return false; }) &&
           !stop.stop_requested()) {
      const Answer answer =
          client.post(path::kHeartbeat, calls.headers(), encode(HeartbeatRequest{state.node, options.heartbeat_s}));
      pause = answer.passing() || answer.status == 401 ? std::min(2.0, options.heartbeat_s / 6)
                                                       : options.heartbeat_s * 2 / 3;
    }
  }

  /// Joins again if the server does not know this node any more, because its folder was made anew.
  /// \return true if the node has joined \throws kConfig when the server does not accept the key; Stopped
  bool known_again(const Answer& answer) {
    if (answer.status != 401) return false;
    log::warning("[node] ", options.server.text(), " does not know this node any more (401); joining again");
    if (last_root) log::warning("[node] the last reply was not collected before that");
    last_root.reset();
    beating = {};
    remove_path(memory_file(options));
    state = {};
    join();
    return true;
  }

  // ---- instructions

  double pause(bool brisk) const {
    constexpr double kBrisk_s = 0.05;
    const double since = seconds_since(found_at);
    const double least = brisk ? std::min(kBrisk_s, options.poll_s) : options.poll_s;
    return std::clamp(since / 20, least, std::max(options.poll_s, options.slowest_poll_s));
  }

  std::optional<Instruction> poll() {
    const Answer answer = calls.call(path::kPullMessages, encode(PullMessagesRequest{state.node}));
    if (!answer.ok()) {
      if (known_again(answer) || (answer.status == 403 && answer.code == kRunNotRunning)) return {};
      calls.give_up(answer, path::kPullMessages);
    }
    try {
      auto response = decode<PullMessagesResponse>(answer.body);
      if (!response.message) return {};
      found_at = SteadyClock::now();
      auto& envelope = *response.message;
      return Instruction{
          .metadata = std::move(envelope.metadata), .tree = std::move(envelope.tree), .arrived_at = now_seconds()};
    } catch (const Error& error) {
      log::warning("[node] an instruction is passed over: ", error.what());
      return {};
    }
  }

  /// Pulls an object into `assembly`. A damaged object or answer is pulled again, up to twice.
  void pull(Assembly& assembly, const Instruction& instruction, const std::string& id, size_t client) {
    const std::string request =
        encode(ObjectRequest{.node = state.node, .run_id = instruction.metadata.run_id, .object_id = id});
    double pause = 0.1;
    for (int damaged = 0;;) {
      const Answer answer = calls.call(path::kPullObject, request, {}, client);
      if (!answer.ok()) give_up_message(answer, path::kPullObject);
      try {
        const auto response = decode<PullObjectResponse>(answer.body);
        EK_CHECK(response.found, kData, "object ", id, " of the instruction is gone from the server");
        if (response.available) return assembly.take(id, response.content);
      } catch (const Error&) {
        if (assembly.failed() || ++damaged == kMostDamaged) throw;
        continue;
      }
      calls.sleep(pause);
      pause = std::min(1.0, pause * 1.5);
    }
  }

  Content receive(const Instruction& instruction, const BufferAllocator& place) {
    try {
      Assembly assembly(instruction.tree, options.limits, place, fs::absolute(options.folder), kMostSpooled);
      for (auto missing = assembly.missing_structure(); !missing.empty(); missing = assembly.missing_structure())
        side_by_side(missing.size(), calls.connections(),
                     [&](size_t i, size_t thread) { pull(assembly, instruction, missing[i], thread); });
      side_by_side(assembly.arrays(), calls.connections(), [&](size_t array, size_t thread) {
        while (const auto id = assembly.next_chunk(array)) pull(assembly, instruction, *id, thread);
      });
      EK_CHECK(assembly.complete(), kInternal, "an instruction is not whole");
      confirm(instruction);
      EK_CHECK(!assembly.failure(), kData, "an instruction is an error: ", assembly.failure()->reason);
      return assembly.content();
    } catch (const Error& error) {
      tell(instruction, error);
      throw;
    }
  }

  void confirm(const Instruction& instruction) {
    const Answer answer =
        calls.call(path::kConfirm,
                   encode(ConfirmRequest{state.node, instruction.metadata.run_id, instruction.metadata.message_id}));
    if (!answer.ok()) give_up_message(answer, path::kConfirm);
  }

  /// Reports an invalid instruction to the server, if possible.
  void tell(const Instruction& instruction, const Error& error) {
    try {
      confirm(instruction);
      push(Parcel(metadata_of_reply(instruction), Failure{ErrorCode::kPrecondition, error.what()}), instruction);
    } catch (const std::exception& another) {
      log::warning("[node] the server was not told: ", another.what());
    }
  }

  // ---- replies

  Metadata metadata_of_reply(const Instruction& instruction) const {
    const auto& request = instruction.metadata;
    const double now = now_seconds();
    return {.run_id = request.run_id,
            .src_node = state.node,
            .dst_node = request.src_node,
            .reply_to = request.message_id,
            .group = request.group,
            .ttl = request.ttl - (now - request.created_at),
            .type = request.type,
            .created_at = now,
            .src_task = request.dst_task,
            .dst_task = request.src_task};
  }

  void push(const Parcel& parcel, const Instruction& instruction) {
    const auto& metadata = parcel.metadata();
    EK_CHECK(metadata.ttl > 0, kData, "the reply is ready ", -metadata.ttl, " s after the instruction's time was over");
    const PushMessagesRequest request{.node = state.node,
                                      .message = CallMessage{.metadata = metadata,
                                                             .has_content = !parcel.failure(),
                                                             .failure = parcel.failure(),
                                                             .tree = parcel.tree()},
                                      .runtime_s = now_seconds() - instruction.arrived_at};
    int tries = 0;
    const Answer answer = calls.call(path::kPushMessages, encode(request), {}, 0, &tries);
    if (!answer.ok()) give_up_message(answer, path::kPushMessages);
    const auto response = decode<PushMessagesResponse>(answer.body);
    const bool lost_answer =
        tries > 1 && response.objects_to_push.empty();  // all objects are pushed then, without a token
    EK_CHECK(lost_answer || !response.objects_to_push.empty(), kData, "the server takes no reply to ",
             shown(metadata.reply_to, 80), ": it came too late, or there was one already",
             answer.detail.empty() ? "" : ": ", answer.detail);
    Pushing pushing{
        .wanted = {response.objects_to_push.begin(), response.objects_to_push.end()},
        .all = lost_answer,
        .request = {.node = state.node, .run_id = metadata.run_id, .object_id = {}, .token = response.token}};
    for (const Object* object : parcel.structure()) push(*object, pushing, 0);
    const auto groups = parcel.chunks();
    side_by_side(groups.size(), calls.connections(), [&](size_t i, size_t thread) {
      for (const Object* object : groups[i]) push(*object, pushing, thread);
    });
    last_root = metadata.message_id;
    last_run = metadata.run_id;
  }

  struct Pushing {
    std::set<std::string, std::less<>> wanted;
    bool all = false;
    ObjectRequest request;
    std::mutex mutex{};
    std::set<std::string, std::less<>> started{};

    bool take(const std::string& id) {
      const std::lock_guard lock(mutex);
      return (all || wanted.contains(id)) && started.insert(id).second;
    }
  };

  /// Sends an object. The server refuses one that was damaged on the way, which is sent again, up to twice.
  void push(const Object& object, Pushing& pushing, size_t client) {
    if (!pushing.take(object.id)) return;
    ObjectRequest request = pushing.request;
    request.object_id = object.id;
    const std::string head = encode(request) + object_field(kPushedField, object.bytes()) + object.head;
    std::vector<std::string_view> pieces;
    for (const auto piece : object.pieces) pieces.push_back(as_text(piece));
    std::string why;
    for (int tries = 0; tries < kMostDamaged; ++tries) {
      const Answer answer = calls.call(path::kPushObject, head, pieces, client);
      if (!answer.ok()) give_up_message(answer, path::kPushObject);
      if (decode<PushObjectResponse>(answer.body).stored) return;
      if (why.empty()) why = answer.detail;
    }
    fail(kData, "the server does not take object ", object.id, " of the reply", why.empty() ? "" : ": ", why);
  }

  bool collected() {
    if (!last_root) return true;
    const Answer answer = calls.call(
        path::kPullObject, encode(ObjectRequest{.node = state.node, .run_id = last_run, .object_id = *last_root}));
    const bool exists = answer.ok() && decode<PullObjectResponse>(answer.body).found;
    if (!exists) last_root.reset();
    return !exists;
  }

  /// Returns true unless the server still has the last reply, which leaving could lose.
  bool is_fetched(HttpClient& client) {
    if (!last_root) return true;
    const Answer answer =
        client.post(path::kPullObject, calls.headers(),
                    encode(ObjectRequest{.node = state.node, .run_id = last_run, .object_id = *last_root}));
    return answer.ok() && !decode<PullObjectResponse>(answer.body).found;
  }

  void sign_off() try {
    if (state.node == 0) return;
    beating = {};  // a later heartbeat would count as a sign of life
    HttpClient client(options.server, kSignOffTimeout, kMostAnswer);
    const auto end = SteadyClock::now() + std::chrono::duration<double>(kSignOffTimeout);
    while (!is_fetched(client)) {
      if (SteadyClock::now() > end) return log::info("[node] left without signing off");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    client.post(path::kDeactivate, calls.headers(), encode(NodeId{state.node}));
  } catch (const std::exception& error) {
    log::warning("[node] left without signing off: ", error.what());
  }

  void leave(double patience_s) {
    const bool waited = calls.within(patience_s, [&] {
      for (double pause = 0.1; !collected(); pause = std::min(2.0, pause * 1.5)) calls.sleep(pause);
    });
    if (!waited) log::warning("[node] the last reply was not collected in ", patience_s, " s");
    beating = {};
    const bool signed_off = calls.within(kSignOffPatience, [&] {
      calls.call(path::kDeactivate, encode(NodeId{state.node}));
      if (state.registered) calls.call(path::kUnregister, encode(NodeId{state.node}));
      remove_path(memory_file(options));
    });
    if (!signed_off) log::warning("[node] ", options.server.text(), " does not answer; left without a word");
  }

  const NodeOptions options;
  NodeCalls calls;
  std::optional<FileLock> lock{};  // of the folder: one process uses it at a time
  Remembered state{};
  std::optional<std::string> last_root{};
  SteadyClock::time_point found_at = SteadyClock::now();  // when the last instruction arrived
  uint64_t last_run = 0;
  std::mutex beat_mutex{};
  std::condition_variable_any beat_stopped{};
  std::jthread beating{};  // declared last, so that it ends before what it uses
};

NodeLink::NodeLink(NodeOptions options) : parts_(std::make_unique<Parts>(std::move(options))) {}
NodeLink::~NodeLink() = default;
void NodeLink::join() { parts_->join(); }
uint64_t NodeLink::id() const { return parts_->state.node; }
std::optional<Instruction> NodeLink::poll() { return parts_->poll(); }
void NodeLink::rest(bool brisk) { parts_->calls.sleep(parts_->pause(brisk)); }

Content NodeLink::receive(const Instruction& instruction, const BufferAllocator& place) {
  return parts_->receive(instruction, place);
}

void NodeLink::reply(const Instruction& instruction, const Content& content) {
  parts_->push(Parcel(parts_->metadata_of_reply(instruction), content), instruction);
}

void NodeLink::refuse(const Instruction& instruction, ErrorCode code, const std::string& reason) {
  parts_->push(Parcel(parts_->metadata_of_reply(instruction), Failure{code, reason}), instruction);
}

bool NodeLink::collected() { return parts_->collected(); }
void NodeLink::sign_off() { parts_->sign_off(); }
double NodeLink::silent_s() const { return parts_->calls.silent_s(); }
void NodeLink::leave(double patience_s) { parts_->leave(patience_s); }

}  // namespace evenkeel::flower
