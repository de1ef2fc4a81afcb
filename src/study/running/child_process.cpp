#include "study/running/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/os_error.h"

namespace evenkeel::study {
namespace {

constexpr const char* kThisProgram = "/proc/self/exe";
constexpr size_t kLongestLine = 4096;  // limit of a line of the child; the rest is dropped

struct Pipe {
  int read = -1, write = -1;
};

Pipe open_pipe() {
  std::array<int, 2> ends{};
  EK_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, kIo, "no pipe to a run: ", os_error_text(errno));
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {ends[0], ends[1]};
}

constexpr std::array kStopSignals{SIGTERM, SIGINT};

/// Blocks the signals that stop a run. \return the mask before
sigset_t block_stop_signals() {
  sigset_t blocked, before;
  ::sigemptyset(&blocked);
  for (const int signal : kStopSignals) ::sigaddset(&blocked, signal);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  return before;
}

/// Reports that exec failed, as an error line of the program. The line is one write of a buffer on the stack, because
/// the child of a process with threads must not allocate memory.
void report_no_start(int reason) {
  std::array<char, 256> line{};
  const char* text = ::strerrordesc_np(reason);
  const int length =
      std::snprintf(line.data(), line.size(), "evenkeel: [io] the program of a run cannot be started: %s\n",
                    text != nullptr ? text : "unknown error");
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), static_cast<size_t>(length));
}

/// Runs in the child between fork and exec, with system calls only. The child dies with its parent, and gets signals
/// from the parent only. Signals that arrive before exec must not reach the parent's handlers, which would lose them.
/// \param mask  signal mask of the program
[[noreturn]] void become(char* const* arguments, char* const* environment, pid_t parent, int errors,
                         const sigset_t& mask) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::setpgid(0, 0);
  const int nothing = ::open("/dev/null", O_RDWR);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(nothing, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  for (const int signal : kStopSignals) ::signal(signal, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execve(arguments[0], arguments, environment);
  // The file was replaced or removed. The link still leads to this program, so all runs of a study are of one program.
  if (errno == ENOENT) ::execve(kThisProgram, arguments, environment);
  report_no_start(errno);
  ::_exit(127);
}

/// Returns the environment of this process with some variables replaced or added.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  const auto is_replaced = [&](std::string_view variable) {
    const auto name = variable.substr(0, variable.find('=') + 1);
    return std::any_of(variables.begin(), variables.end(),
                       [&](const std::string& other) { return other.starts_with(name); });
  };
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!is_replaced(*variable)) all.emplace_back(*variable);
  all.insert(all.end(), variables.begin(), variables.end());
  return all;
}

/// Returns pointers for execve(), with a null at the end.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), fs::read_symlink(kThisProgram).string());
  auto variables = environment_with(environment);
  const auto word_pointers = pointers_to(words), variable_pointers = pointers_to(variables);
  const auto pipe = open_pipe();
  const pid_t parent = ::getpid();
  const auto mask = block_stop_signals();
  process_ = ::fork();
  if (process_ == 0) become(word_pointers.data(), variable_pointers.data(), parent, pipe.write, mask);
  const int reason = errno;
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::close(pipe.write);
  errors_ = pipe.read;
  if (process_ > 0) return;
  ::close(pipe.read);
  fail(kIo, "a run: ", no_process_text(reason, "--jobs"));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      errors_(std::exchange(other.errors_, -1)),
      text_(std::move(other.text_)),
      code_(other.code_) {}

ChildProcess::~ChildProcess() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  if (errors_ >= 0) ::close(errors_);
}

std::vector<std::string> ChildProcess::lines() {
  std::vector<std::string> lines;
  std::array<char, 4096> bytes{};
  for (ssize_t count = 0; (count = ::read(errors_, bytes.data(), bytes.size())) > 0;)
    for (const char c : std::string_view(bytes.data(), static_cast<size_t>(count)))
      if (c == '\n')
        lines.push_back(std::exchange(text_, {}));
      else if (text_.size() < kLongestLine)
        text_ += c;
  return lines;
}

std::optional<int> ChildProcess::exit_code() {
  int status = 0;
  if (process_ > 0 && ::waitpid(process_, &status, WNOHANG) == process_) {
    process_ = -1;
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return code_;
}

void ChildProcess::stop() const {
  if (process_ > 0) ::kill(process_, SIGTERM);
}

}  // namespace evenkeel::study
