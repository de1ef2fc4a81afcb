/// \file  Connects the program with a host: a Python process that has a method's class (python/evenkeel_moe/_host.py).
/// The program starts the host as its child, or connects to one that listens on a Unix socket, such as a notebook.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "host/channel.h"
#include "host/tensors.h"

namespace evenkeel::host {

/// Where the class of a method is: `--method FILE:CLASS`.
struct MethodSource {
  std::filesystem::path file{};  ///< a Python file, or the socket of a process that has the class
  std::string class_name{};

  /// Reads FILE:CLASS. \throws kConfig when it has another form, kIo when the file is not there
  static MethodSource read(const std::string& text);
};

/// A connection to a host. The destructor ends a host that it started. Not thread-safe.
class Connection {
 public:
  /// Connects to the socket that `source` names, or starts a host with the Python that $EVENKEEL_PYTHON names (default:
  /// python3). \throws kIo when nobody listens or Python cannot be started
  explicit Connection(const MethodSource& source);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  /// Sets the method and hook that errors name, and the time limit of receive() in seconds.
  void set_wait(std::string who, double seconds);
  /// Sends a message and the tensors that it refers to (host/tensors.h).
  /// \return the segment of the tensors; null without tensors \throws kIo when the host has ended
  std::shared_ptr<Segment> send(OrderedJson message, const Outgoing& tensors = {});
  /// Waits for the next message. If it brings a segment of the host, that is segment 0 of segments() afterwards.
  /// \throws kIo when the host ends or takes longer than the time limit; kData when the message is not JSON;
  /// Interrupted five seconds after Ctrl-C
  Json receive();
  /// Lists the segments that the host may point into: its own, and the segments of tensors sent since release().
  const SegmentsById& segments() const { return segments_; }
  /// Ends a call and frees all segments except those in `kept`, in which the host still holds arrays.
  void release(const std::vector<int64_t>& kept);

  /// Returns true in the process that made the connection, until the host has ended or a wait was given up. A forked
  /// process needs its own connection.
  bool is_usable() const { return is_own() && !ended_; }

 private:
  bool is_own() const;
  [[noreturn]] void ended();
  void check_wait(std::chrono::steady_clock::time_point since);
  void kill_host();

  std::string who_;
  double seconds_ = 0;
  std::optional<std::chrono::steady_clock::time_point> interrupted_at_{};
  pid_t owner_;
  pid_t child_ = 0;     // 0: a host that was not started here
  bool ended_ = false;  // the host has ended, or its answer may still come and would be taken for another
  Channel channel_;
  SegmentPool pool_;
  SegmentsById segments_;
};

}  // namespace evenkeel::host
