/// \file  Limits how many calls of one node are answered at the same time, so that no node can take all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace evenkeel::flower {

/// Counts the calls that are being answered, by node. Any thread may call its functions.
class CallsAtOnce {
 public:
  /// \param most  calls of one node at a time
  explicit CallsAtOnce(size_t most) : most_(most) {}

  /// One call that is being answered, from construction to destruction.
  class Call {
   public:
    Call(CallsAtOnce& calls, uint64_t node) : calls_(calls), node_(node), allowed_(calls.begin(node)) {}
    ~Call() { calls_.end(node_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    /// Returns false if the node has as many calls as it may have, without this one.
    bool allowed() const { return allowed_; }

   private:
    CallsAtOnce& calls_;
    const uint64_t node_;
    const bool allowed_;
  };

  size_t most() const { return most_; }

 private:
  bool begin(uint64_t node) {
    const std::lock_guard lock(mutex_);
    return ++calls_[node] <= most_;
  }
  void end(uint64_t node) {
    const std::lock_guard lock(mutex_);
    if (--calls_[node] == 0) calls_.erase(node);
  }

  const size_t most_;
  std::mutex mutex_;
  std::map<uint64_t, size_t> calls_;  // by node
};

}  // namespace evenkeel::flower
