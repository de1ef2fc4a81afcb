/// \file  Sends and receives messages over a Unix socket. A message is a JSON text, and at most one file descriptor.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/plain/descriptor.h"
#include "base/plain/json.h"

namespace evenkeel::host {

/// A message that was received.
struct Message {
  Json json{};
  Descriptor descriptor{};  ///< descriptor sent with the message, if any
};

/// One end of a connection. Not thread-safe.
class Channel {
 public:
  /// \param socket  a connected stream socket of AF_UNIX
  explicit Channel(Descriptor socket) : socket_(std::move(socket)) {}

  /// Sends a message. \param descriptor  goes with it; -1: none \throws Closed when the other end is gone
  void send(std::string_view text, int descriptor = -1) const;
  /// Waits for a message.
  /// \param wait  called ten times a second while nothing arrives; throws to stop waiting
  /// \throws Closed when the other end is gone; kData when the message is not JSON
  Message receive(const std::function<void()>& wait) const;

  /// Thrown when the other end has closed the connection.
  struct Closed {};

 private:
  void read_exactly(char* to, size_t bytes, Descriptor* descriptor, const std::function<void()>& wait) const;

  Descriptor socket_;
};

}  // namespace evenkeel::host
