/// \file  Holds the coordinator's messages: messages that wait for a node, their replies while they arrive, and their
/// results.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "flower/format/calls.h"
#include "flower/format/objects.h"
#include "flower/server/assembly.h"
#include "flower/server/coordinator_options.h"

namespace evenkeel::flower {

/// The messages of a coordinator. Thread-safe: any thread may call.
class Mailbox {
 public:
  Mailbox(uint64_t run_id, const CoordinatorOptions& options);

  /// send() and forget() have the contracts of the functions of Coordinator with the same names.
  std::string send(uint64_t node, const Content& content, SendOptions options);
  void forget(const std::string& message_id);
  /// Has the contract of Coordinator::wait(). \param sweep  called about ten times a second while waiting, without the
  /// lock
  std::optional<Arrival> wait(std::chrono::steady_clock::time_point deadline, const std::function<void()>& sweep);

  /// Returns the nodes that have unfinished messages.
  std::set<uint64_t> addressees() const;
  /// Ends all unfinished messages of the node with kLost and Arrival::left.
  void lose(uint64_t node, const std::string& why);
  /// Ends with kLost the messages that the node has received and not fully answered. Call it when a node of evenkeel
  /// asks for work: it does so only after it has dropped these messages.
  void lose_unanswered(uint64_t node);
  /// Ends messages whose time to live has passed (kExpired), and messages whose reply has stalled (kLost).
  void expire();
  void end_run();
  bool ended() const;

  // ---- calls of a node; all may throw Refusal
  /// Returns the oldest message that is due: the node has not fetched it, or has fetched it and then, for ten seconds,
  /// pulled none of its objects.
  PullMessagesResponse pull(uint64_t node);
  struct Borrowed {
    const Object* object = nullptr;       ///< null: the id names a reply that is still arriving
    std::shared_ptr<const void> owner{};  ///< keeps the object alive
    /// Returns true once the message is given up, so that nobody waits until the object is sent.
    std::function<bool()> given_up{};
  };
  /// Finds an object of a message for the node; nothing if there is none.
  std::optional<Borrowed> find(uint64_t node, uint64_t run_id, const std::string& object_id);
  /// Marks a message as received and releases its arrays.
  void confirm(uint64_t node, const ConfirmRequest& request);
  struct Answered {
    PushMessagesResponse response{};
    std::string refusal{};
  };
  /// Starts a reply. `refusal` is the reason when the reply is refused, otherwise empty.
  Answered push(uint64_t node, const PushMessagesRequest& request);
  struct Stored {
    bool stored = false;
    std::string refusal{};
  };
  /// Stores an object of a reply. `stored` is false when it is refused, with the reason in `refusal`. An object of the
  /// node's last whole reply is stored already: a node whose answer was lost sends it again.
  Stored push_object(uint64_t node, const PushObjectRequest& request);

  /// Messages by state. failed: Arrival::Kind::kError; refused: kRefused and kFailed.
  struct Counts {
    uint64_t sent = 0, replied = 0, failed = 0, refused = 0, lost = 0, expired = 0, open = 0;
  };
  Counts counts() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Reply {
    std::string root, token;
    std::shared_ptr<Assembly> assembly;
    Clock::time_point lease_until{};
    double client_s = 0;  // Arrival::client_s
  };
  struct Sent {
    uint64_t node = 0;
    std::shared_ptr<const Parcel> parcel;  ///< null once the node has confirmed the message
    Metadata metadata;
    BufferAllocator place;
    Clock::time_point expires_at{}, touched_at{};
    std::optional<Clock::time_point> delivered_at{};
    bool confirmed = false;
    std::optional<Reply> reply{};
    int in_use = 0;                      ///< number of calls that use its buffers and pieces now
    std::atomic<bool> given_up = false;  ///< true: calls that use it end early
  };
  /// The reply of a node that arrived whole last.
  struct LastReply {
    std::string token;
    std::vector<std::string> objects;  // ids
  };
  using Messages = std::map<std::string, std::shared_ptr<Sent>>;

  void check_run(uint64_t run_id) const;
  Sent* owned(uint64_t node, const std::string& message_id);
  Messages::iterator replying(uint64_t node, const PushObjectRequest& request);
  bool is_of_last_reply(uint64_t node, const PushObjectRequest& request) const;
  std::string why_not(const Sent* sent, uint64_t node, const Metadata& reply) const;
  std::shared_ptr<const void> use(
      const std::shared_ptr<Sent>& sent);  // counts as used until the returned pointer is released
  void finish(const std::string& message_id, Arrival arrival);

  const uint64_t run_id_;
  const Limits limits_;
  const NodeLimits node_limits_;
  const double lease_s_;
  const std::filesystem::path folder_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Messages messages_{};  // unfinished messages, by id
  std::map<uint64_t, std::set<std::string>> of_node_{};
  std::map<uint64_t, LastReply> last_replies_{};
  std::deque<std::pair<Arrival, std::shared_ptr<Sent>>> arrivals_{};  // results that wait() has not returned yet
  Counts counts_{};
  bool ended_ = false;
};

}  // namespace evenkeel::flower
