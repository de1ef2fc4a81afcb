#include "cluster/spawn.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "base/plain/error.h"
#include "base/plain/log.h"
#include "base/plain/os_error.h"

namespace evenkeel::cluster {
namespace {

constexpr double kPatience = 3;  // seconds that the other ranks have to report their errors after one has failed

volatile std::sig_atomic_t leader = 0;

void hand_on(int signal) {
  if (leader > 0) ::kill(leader, signal);
}

/// Returns a listening socket on loopback, so that no other process can take its port.
StoreAddress listening_address() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof name;
  auto* address = reinterpret_cast<sockaddr*>(&name);
  EK_CHECK(
      fd >= 0 && ::bind(fd, address, length) == 0 && ::listen(fd, 128) == 0 && ::getsockname(fd, address, &length) == 0,
      kIo, "--ranks: loopback takes no socket: ", os_error_text(errno));
  return {.host = "127.0.0.1", .port = ntohs(name.sin_port), .here = false, .listening = fd};
}

/// Prepares a new rank: it dies with its parent, and gets signals from the parent only.
void begin_rank(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::setpgid(0, 0);
}

using Clock = std::chrono::steady_clock;

class Ranks {
 public:
  explicit Ranks(bool others_go_on) : others_go_on_(others_go_on) {}
  void add(pid_t process, int rank) { running_[process] = rank; }

  /// Returns the code of rank 0, or 1 if another rank failed. \throws kIo if rank 0 was killed, which then has said
  /// nothing itself
  int wait_for_all() {
    while (!running_.empty()) {
      int status = 0;
      const pid_t process = ::waitpid(-1, &status, WNOHANG);
      if (const auto found = running_.find(process); process > 0 && found != running_.end()) ended(found, status);
      if (failed_ && Clock::now() > deadline_) kill_all();
      if (process <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EK_CHECK(leader_signal_ == 0, kIo, "rank 0 was killed by signal ", leader_signal_, ": the others are ended");
    return code_;
  }

 private:
  void ended(std::map<pid_t, int>::iterator process, int status) {
    const int rank = process->second;
    const bool killed = WIFSIGNALED(status);
    const int code = killed ? 1 : WEXITSTATUS(status);
    running_.erase(process);
    if (rank == 0 && killed) leader_signal_ = WTERMSIG(status);
    if (code == 0 && rank != 0) return;
    if (rank != 0 && others_go_on_) {
      log::warning("[cluster] rank ", rank, " has ended, the other ranks continue");
      return;
    }
    if (!failed_ && killed && rank != 0)
      log::error("[cluster] rank ", rank, " was killed by signal ", WTERMSIG(status), ": the others are ended");
    if (!failed_ && (code != 0 || !running_.empty())) begin_end();
    if (code_ == 0 || (rank == 0 && code != 0)) code_ = code;
  }

  void begin_end() {
    failed_ = true;
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kPatience));
  }

  void kill_all() {
    for (const auto& [process, rank] : running_) ::kill(process, SIGKILL);
  }

  bool others_go_on_;
  std::map<pid_t, int> running_;
  bool failed_ = false;
  Clock::time_point deadline_;
  int code_ = 0, leader_signal_ = 0;
};

}  // namespace

Launch spawn(int ranks, bool others_go_on) {
  const auto address = listening_address();
  const pid_t parent = ::getpid();
  Ranks children(others_go_on);
  std::fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = ::fork();
    EK_CHECK(process >= 0, kIo, "--ranks, process ", rank + 1, ": ", no_process_text(errno, "--ranks"));
    if (process == 0) {
      begin_rank(parent);
      ::setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);  // selects the rank's GPU (base/system/device.h)
      Launch launch{.rank = rank, .size = ranks, .store = address, .launcher = "--ranks"};
      launch.store.here = rank == 0;
      if (rank != 0) ::close(address.listening);
      return launch;
    }
    if (rank == 0) leader = process;
    children.add(process, rank);
  }
  ::close(address.listening);
  struct sigaction action = {};
  action.sa_handler = hand_on;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  std::_Exit(children.wait_for_all());
}

}  // namespace evenkeel::cluster
