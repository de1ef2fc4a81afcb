/// \file  Connections between two requests. One thread waits for all of them: a thousand nodes that ask now and then,
/// or say nothing at all, hold no threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "flower/http/connection.h"

namespace evenkeel::wire {

class IdleConnections {
 public:
  /// Called by the waiting thread with a connection on which something has arrived, its end included.
  using Ready = std::function<void(std::shared_ptr<Connection>)>;

  /// \param idle_s  after which a connection is closed
  /// \param most    connections; beyond it the one that has been silent for longest is closed. At most half of what the
  ///                process may have open.
  IdleConnections(double idle_s, size_t most, Ready ready);
  ~IdleConnections();  ///< as close()

  /// Waits with `connection`. Any thread; after close() it is closed at once.
  void add(std::shared_ptr<Connection> connection);
  /// Closes all. `ready` is not called any more once this returns.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    std::shared_ptr<Connection> connection;
    Clock::time_point until;
  };
  using Queue = std::list<Waiting>;  // the longest silent first: all may be silent for equally long

  void watch();
  std::shared_ptr<Connection> take(int socket);
  void drop_front();
  void drop_expired();
  void wake() const;

  const Clock::duration idle_;
  const size_t most_;
  const Ready ready_;
  int poll_, wake_;
  std::mutex mutex_;
  Queue queue_;
  std::unordered_map<int, Queue::iterator> by_socket_;
  bool closed_ = false;
  std::jthread thread_;
};

}  // namespace evenkeel::wire
