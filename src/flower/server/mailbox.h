/// \file  The coordinator's messages: what waits for each node, what it has taken, what it replies, and what became of
/// all that.
#pragma once

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

namespace evenkeel::wire {

/// Any thread may call.
class Mailbox {
 public:
  Mailbox(uint64_t run_id, const CoordinatorOptions& options);

  std::string send(uint64_t node, const Content& content, SendOptions options);
  void forget(const std::string& message_id);
  /// What became of a message, as Coordinator::wait. \param sweep  called ten times a second meanwhile
  std::optional<Arrival> wait(std::chrono::steady_clock::time_point deadline, const std::function<void()>& sweep);

  /// Nodes that have a message which is not done.
  std::set<uint64_t> addressees() const;
  /// Every message of the node that is not done is lost.
  void lose(uint64_t node, const std::string& why);
  /// Messages and replies whose time is over.
  void expire();
  void end_run();
  bool ended() const;

  // ---- a node's calls. \throws Refusal
  PullMessagesResponse pull(uint64_t node);
  struct Borrowed {
    const Object* object = nullptr;  ///< null when it is found and not to be had: the reply that is on its way
    std::shared_ptr<const void> owner{};
  };
  std::optional<Borrowed> find(uint64_t node, uint64_t run_id, const std::string& object_id);
  void confirm(uint64_t node, const ConfirmRequest& request);
  struct Answered {
    PushMessagesResponse response{};
    std::string refusal{};
  };
  Answered push(uint64_t node, const PushMessagesRequest& request);
  struct Stored {
    bool stored = false;
    std::string refusal{};
  };
  Stored push_object(uint64_t node, const PushObjectRequest& request);

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
    double client_s = 0;
  };
  struct Sent {
    uint64_t node = 0;
    std::shared_ptr<const Parcel> parcel;  ///< until the node has it
    Metadata metadata;
    BufferAllocator place;
    Clock::time_point expires_at{}, touched_at{};
    std::optional<Clock::time_point> delivered_at{};
    bool confirmed = false;
    std::optional<Reply> reply{};
    int in_use = 0;  ///< by calls: its places and pieces must not go
  };
  using Messages = std::map<std::string, std::shared_ptr<Sent>>;

  void check_run(uint64_t run_id) const;
  Sent* owned(uint64_t node, const std::string& message_id);
  Messages::iterator replying(uint64_t node, const PushObjectRequest& request);
  std::string why_not(const Sent* sent, uint64_t node, const Metadata& reply) const;
  std::shared_ptr<const void> use(const std::shared_ptr<Sent>& sent);  // until it is dropped
  void finish(const std::string& message_id, Arrival arrival);

  const uint64_t run_id_;
  const Limits limits_;
  const NodeLimits node_limits_;
  const double lease_s_;
  const std::filesystem::path folder_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Messages messages_{};  // that are not done
  std::map<uint64_t, std::set<std::string>> of_node_{};
  std::deque<std::pair<Arrival, std::shared_ptr<Sent>>> arrivals_{};  // that were not waited for yet
  Counts counts_{};
  bool ended_ = false;
};

}  // namespace evenkeel::wire
