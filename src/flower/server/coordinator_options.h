/// \file  Declares the options of a coordinator and its reports about nodes and messages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/plain/error.h"
#include "flower/format/flwr_message.h"
#include "flower/format/keys.h"
#include "flower/format/record_dict.h"
#include "flower/http/server_limits.h"

namespace evenkeel::flower {

/// The options of a coordinator.
struct CoordinatorOptions {
  std::string host = "127.0.0.1";
  int port = 0;  ///< port to listen on; 0: any free port, see Coordinator::port()
  std::optional<TlsFiles> tls{};
  bool insecure = false;  ///< must be true without `tls`: signatures do not protect message bodies
  std::vector<AllowedKey> allowed{};
  std::filesystem::path allow_file{};  ///< file of `allowed`, which is read again when it changes; empty: none
  bool open = false;                   ///< true: any key may register; false: only keys in `allowed`
  /// Folder for nodes.json (run id, node ids by key) and for spooled data. Made if absent.
  std::filesystem::path folder;
  /// An app bundle from `flwr build` for stock SuperNodes. Without one they get 403.
  std::optional<std::filesystem::path> fab{};
  std::string fab_id{}, fab_version{};  ///< "publisher/name" and version from the app's pyproject.toml
  int threads = 64;                     ///< connections served at once, 4 to 4096; a working node uses two to six
  size_t registered = 10'000;           ///< most nodes that may register, if `open`
  double lease_s = 180;                 ///< seconds within which the next object of a reply must arrive
  Limits limits{};
  NodeLimits node_limits{};
  std::function<std::string()> metrics{};  ///< text to append to GET /metrics; called by any thread
  /// Returns why GET /readyz answers 503, or an empty string for 200; called by any thread. Empty: always ready.
  std::function<std::string()> not_ready{};
};

/// The state of a node.
struct NodeInfo {
  uint64_t id = 0;
  std::string name;            ///< name in the allow-list, otherwise the key's fingerprint
  std::string fingerprint;     ///< fingerprint of its key
  std::string replaces{};      ///< AllowedKey::replaces
  bool online = false;         ///< true after a call within twice its heartbeat interval
  double last_beat = 0;        ///< time of its last call, seconds since 1970; 0 before the first
  std::string program;         ///< package and version, as the node reports them
  uint64_t refused = 0;        ///< number of refused calls
  std::string last_refusal{};  ///< reason of the last refused call
};

/// Seconds that a message lives: 30 days, longer than training or clients.deadline may be. The protocol requires a
/// limit. Rounds do not wait for it: the sender gives up messages of lost nodes and messages past the deadline.
inline constexpr double kMessageLife_s = 30 * 86'400;

/// The options of one message.
struct SendOptions {
  std::string type = "train";
  std::string group{};            ///< the round
  double ttl_s = kMessageLife_s;  ///< seconds to live; then replies are refused and kExpired is reported
  BufferAllocator place{};        ///< buffers for the reply's arrays; without it, replies with arrays are refused
};

/// The result of a message that was sent.
struct Arrival {
  enum class Kind {
    kReply,    ///< the complete reply; its arrays are in their buffers
    kError,    ///< the node reported a failure: see code and reason
    kRefused,  ///< the reply was invalid: see reason
    kLost,     ///< the node went offline, signed off or stopped sending: see reason
    kExpired,  ///< the time to live has passed
    kFailed,   ///< this machine could not take the reply, e.g. because its disk is full: see failure
  };
  Kind kind = Kind::kReply;
  uint64_t node = 0;
  std::string message_id;         ///< what send() returned
  Content content{};              ///< kReply: config, metrics and array heads
  std::shared_ptr<void> owner{};  ///< kReply: ReceiveBuffers::owner
  ErrorCode code = ErrorCode::kUnknown;
  std::string reason{};
  bool left = false;               ///< kLost: the node went offline, signed off, began anew or lost its key
  std::optional<Error> failure{};  ///< kFailed
  uint64_t bytes = 0;              ///< bytes of the reply's objects
  double client_s = 0;             ///< seconds from the node's pull to the announcement of its reply, server clock
};

}  // namespace evenkeel::flower
