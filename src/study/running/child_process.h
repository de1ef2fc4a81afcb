/// \file  Runs a command of this program as a child process, without output on the terminal. The child ends when this
/// process ends, also when this process is killed.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace evenkeel::study {

/// A child process. Its standard error is read line by line; standard output is dropped.
class ChildProcess {
 public:
  /// Starts this program with other arguments. \throws kIo when the system cannot create a process
  /// \param environment  variables that are added or replaced, each as NAME=VALUE
  explicit ChildProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});
  /// Kills the child if it has not ended, and waits for it.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  /// Returns the complete lines that the child has written since the last call, without line ends and cut to 4096
  /// bytes. Does not wait.
  std::vector<std::string> lines();
  /// Returns the exit code, or 128 + the signal if the child was killed; nothing while it runs. Does not wait.
  std::optional<int> exit_code();
  /// Asks the child to save its state and end (SIGTERM).
  void stop() const;

 private:
  pid_t process_ = -1;  // -1: has ended
  int errors_ = -1;     // the end of a pipe
  std::string text_{};  // the beginning of a line
  std::optional<int> code_{};
};

}  // namespace evenkeel::study
