/// \file  A server of Flower's Fleet protocol: nodes of ours and stock `flower-supernode`s join it, take what is sent
/// to them, and what they reply is put where it belongs as it arrives. No Control or Runtime API, no Python. Example:
///   Coordinator coordinator({.host = "0.0.0.0", .port = 8000, .tls = TlsFiles{"server.pem", "server.key"},
///                            .allowed = read_allow_list("keys.txt"), .folder = run / "federation"});
///   for (const auto& node : coordinator.nodes())
///     if (node.online) coordinator.send(node.id, content, {.type = "train", .group = "1", .place = place});
///   while (const auto arrival = coordinator.wait(deadline)) fold(*arrival);
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wire/keys.h"
#include "wire/message.h"
#include "wire/records.h"

namespace evenkeel::wire {

/// PEM files of the server. Nodes are known by their keys, not by certificates.
struct TlsFiles {
  std::filesystem::path certificate;  ///< with a subjectAltName for the address that nodes use; chain included
  std::filesystem::path key;
};

/// What one node may ask for. Beyond it its calls are refused and it is named in the log; others go on.
struct NodeLimits {
  double calls_per_s = 200;            ///< of calls other than those that move objects, on average
  double burst = 400;                  ///< calls at once
  size_t open_messages = 64;           ///< instructions that it has not answered: more cannot be sent
  uint64_t spool = uint64_t{4} << 30;  ///< bytes that arrived before it was known where they belong
  double head_s = 10;                  ///< for the head of a request
  double bytes_per_s = 16 << 10;       ///< below which a body, after ten seconds, is not worth a thread
  double silence_s = 20;               ///< within a body, or an answer that is not taken
  double idle_s = 30;                  ///< that a connection may be silent between two requests
};

struct CoordinatorOptions {
  std::string host = "127.0.0.1";
  int port = 0;  ///< 0: any free one, see Coordinator::port()
  std::optional<TlsFiles> tls{};
  bool insecure = false;  ///< without `tls` it has to be said: signatures alone keep nobody from changing bodies
  std::vector<AllowedKey> allowed{};
  bool open = false;  ///< any key may register; else `allowed` has to name it
  /// State that outlives the process (nodes.json: run id and node ids by key), and what is spooled. Made when absent.
  std::filesystem::path folder;
  /// An app bundle as `flwr build` writes it, for stock SuperNodes; without it they are told 403.
  std::optional<std::filesystem::path> fab{};
  std::string fab_id{}, fab_version{};  ///< "publisher/name" and version as its pyproject.toml has them
  int threads = 64;            ///< connections that are served at one time; a node holds two to six while it works
  size_t registered = 10'000;  ///< nodes that may register where it is open
  double lease_s = 180;        ///< in which an object of a reply has to arrive after the last
  Limits limits{};
  NodeLimits node_limits{};
  std::function<std::string()> metrics{};  ///< text of GET /metrics, after the coordinator's own lines. Any thread.
};

struct NodeInfo {
  uint64_t id = 0;
  std::string name;         ///< in the allow-list; the key's fingerprint where there is none
  std::string fingerprint;  ///< of its key
  bool online = false;      ///< a beat within twice the interval that it promised
  double last_beat = 0;     ///< seconds since 1970; 0 before the first
  std::string program;      ///< package and version, as it says of itself
  uint64_t refused = 0;     ///< calls that were refused
  std::string last_refusal{};
};

struct SendOptions {
  std::string type = "train";
  std::string group{};    ///< the round
  double ttl_s = 43'200;  ///< a reply after that is refused, and reported as kExpired
  Placing place{};        ///< for the reply's arrays. Without it a reply with arrays is refused.
};

/// What became of a message that was sent.
struct Arrival {
  enum class Kind {
    kReply,    ///< whole, its arrays in their places
    kError,    ///< the node says that it failed: code and reason
    kRefused,  ///< the reply was not fit to be taken: reason
    kLost,     ///< the node is offline or signed off, or broke off its reply: reason
    kExpired,  ///< the message's time is over
  };
  Kind kind = Kind::kReply;
  uint64_t node = 0;
  std::string message_id;         ///< what send() returned
  Content content{};              ///< kReply: configs, metrics and heads
  std::shared_ptr<void> owner{};  ///< kReply: Places::owner
  ErrorCode code = ErrorCode::kUnknown;
  std::string reason{};
  uint64_t bytes = 0;   ///< of the reply's objects
  double client_s = 0;  ///< between its pulling the message and announcing the reply, on the server's clock
};

/// One object is one listening server. Any thread may call; waiting is for one at a time.
class Coordinator {
 public:
  /// Listens from now on. \throws kConfig for options that make no sense or files that do not fit, kIo when the port
  /// is taken, kCheckpoint when nodes.json is damaged.
  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  int port() const;
  uint64_t run_id() const;  ///< of this folder, the same after a restart

  /// All that have registered or are allowed and were activated once, by id.
  std::vector<NodeInfo> nodes() const;

  /// Puts a message into a node's mailbox; it comes for it by itself. Arrays are borrowed until the node has them all,
  /// or the message is done: pack once and send to many. \returns the message's id.
  /// \throws kData for a node that is not known, or that has NodeLimits::open_messages already.
  std::string send(uint64_t node, const Content& content, SendOptions options);
  /// Nothing more is heard of the message; a reply to it is refused. What its places belong to is let go before this
  /// returns.
  void forget(const std::string& message_id);

  /// The next thing that became of a message, in the order in which it did; nothing when the deadline is there before.
  /// Every message that was sent and not forgotten is reported once.
  std::optional<Arrival> wait(std::chrono::steady_clock::time_point deadline);

  /// Ends the run for the nodes: whoever pulls or pushes for it is told so (403/2007), polls find nothing.
  void end_run();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace evenkeel::wire
