/// \file  The options of a coordinator, and what it reports of nodes and messages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flower/format/flwr_message.h"
#include "flower/format/keys.h"
#include "flower/format/record_dict.h"
#include "flower/http/server_limits.h"

namespace evenkeel::wire {

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
  std::string group{};      ///< the round
  double ttl_s = 43'200;    ///< a reply after that is refused, and reported as kExpired
  BufferAllocator place{};  ///< for the reply's arrays. Without it a reply with arrays is refused.
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
  std::shared_ptr<void> owner{};  ///< kReply: ReceiveBuffers::owner
  ErrorCode code = ErrorCode::kUnknown;
  std::string reason{};
  uint64_t bytes = 0;   ///< of the reply's objects
  double client_s = 0;  ///< between its pulling the message and announcing the reply, on the server's clock
};

}  // namespace evenkeel::wire
