/// \file  Calls the hooks of a method's Python class in the process that has it (host/connection.h).
///
/// A conversation is a call of a hook, its result, and in between what the hook asks of the program: tensors of its
/// arguments, sums of uploads, and the base method's hooks (`super().hook()`). One call is made at a time; calls of
/// several threads wait for each other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "host/connection.h"
#include "methods/described_method.h"

namespace evenkeel::host {

/// A class of a method in a host, which is started when it is needed. A forked process starts its own.
class Host {
 public:
  explicit Host(MethodSource source) : source_(std::move(source)) {}

  /// Starts the host and asks for the class's description.
  /// \throws kConfig, kIo when the class cannot be loaded, naming why
  std::shared_ptr<const methods::MethodDescription> describe();
  /// Creates the method's object with the values of its keys, unless it exists. Call it with the mutex held.
  /// \param options  the values by name, as a JSON object
  /// \return the object's number in the host \throws kConfig when the class refuses a value; as describe()
  int64_t object(const std::string& options);

  /// Returns the mutex that a call holds from its first message to release().
  std::mutex& mutex() { return mutex_; }
  /// Returns the connection of this process. Call it with the mutex held. \throws as describe()
  Connection& connection();

 private:
  Json answered(OrderedJson question, const std::string& who, double seconds);

  MethodSource source_;
  std::shared_ptr<const methods::MethodDescription> description_;
  std::mutex mutex_;
  std::unique_ptr<Connection> connection_;
  std::map<std::string, int64_t> objects_;
};

/// Throws the error that `message` reports, if any.
/// \param who  the beginning of the error's text
void throw_if_failed(const JsonView& message, const std::string& who);

}  // namespace evenkeel::host
