/// \file  Watches connections between two requests. One thread waits for all of them, so idle nodes need no thread
/// each.
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

namespace evenkeel::flower {

/// Holds idle connections and returns each when data arrives.
class IdleConnections {
 public:
  /// Called by the watching thread with a connection that has data or was closed by its peer.
  using Ready = std::function<void(std::shared_ptr<Connection>)>;

  /// \param idle_s  seconds after which an idle connection is closed
  /// \param most    number of connections; beyond it the longest idle one is closed. It is reduced to half of the files
  /// that the process may open.
  /// \param ready   see Ready
  IdleConnections(double idle_s, size_t most, Ready ready);
  ~IdleConnections();  ///< calls close()

  /// Starts to watch `connection`. Any thread may call. After close() the connection is closed at once.
  void add(std::shared_ptr<Connection> connection);
  /// Closes all connections. `ready` is not called any more when this returns.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    std::shared_ptr<Connection> connection;
    Clock::time_point until;
  };
  using Queue = std::list<Waiting>;  // longest idle first; all have the same time limit

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

}  // namespace evenkeel::flower
