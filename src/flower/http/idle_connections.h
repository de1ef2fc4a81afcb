/// \file  Watches connections between two requests, and connections whose request head is unfinished. One thread waits
/// for all of them, so neither idle nodes nor slow peers need a thread each.
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

/// Limits of IdleConnections.
struct IdleLimits {
  double idle_s = 30;  ///< seconds after which an idle connection is closed
  double head_s = 10;  ///< seconds after which a connection is closed that is new or has an unfinished head
  /// Most idle connections, and most that are new or have an unfinished head. Beyond these numbers the oldest of an
  /// unknown peer is closed, or else the oldest.
  size_t most = 65536, most_unfinished = 1024;
};

/// Holds connections without a whole request, and returns each when data arrives.
class IdleConnections {
 public:
  /// Called by the watching thread with a connection that has data or was closed by its peer.
  using Ready = std::function<void(std::shared_ptr<Connection>)>;

  /// \param limits   `most` and `most_unfinished` are reduced to a half and a quarter of the files that the process may
  ///                 open
  /// \param ready    see Ready
  /// \param cut_off  called when a connection is closed whose head did not arrive; any thread
  IdleConnections(const IdleLimits& limits, Ready ready, std::function<void()> cut_off);
  ~IdleConnections();  ///< calls close()

  /// Starts to watch a connection on which no byte of the next request has arrived. Any thread may call. After close()
  /// it is closed at once.
  void add(std::shared_ptr<Connection> connection);
  /// Starts to watch a connection that is new, or has a part of a head. The time limit counts from the first call for
  /// this head. Otherwise as add().
  /// \return the number of such connections
  size_t add_unfinished(std::shared_ptr<Connection> connection);
  /// Closes all connections. `ready` is not called any more when this returns.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    std::shared_ptr<Connection> connection;
    Clock::time_point until;
  };
  using Queue = std::list<Waiting>;  // longest waiting first
  struct Place {
    Queue* queue;
    Queue::iterator at;
  };

  void put(Queue& queue, std::shared_ptr<Connection> connection, Clock::time_point until);
  void watch();
  std::shared_ptr<Connection> take(int socket);
  void drop(Queue& queue, Queue::iterator which);
  static Queue::iterator first_to_go(Queue& queue);
  void drop_expired();
  void wake() const;

  const Clock::duration idle_, head_;
  const size_t most_, most_unfinished_;
  const Ready ready_;
  const std::function<void()> cut_off_;
  int poll_, wake_;
  std::mutex mutex_;
  Queue queue_, unfinished_;
  std::unordered_map<int, Place> by_socket_;
  bool closed_ = false;
  std::jthread thread_;
};

}  // namespace evenkeel::flower
