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
#include <vector>

#include "base/plain/clock.h"
#include "base/plain/error.h"
#include "base/plain/log.h"
#include "base/plain/os_error.h"
#include "base/system/events.h"
#include "base/system/interrupt.h"
#include "cluster/rank_ends.h"

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

/// The running ranks, in the process that started them.
class Ranks {
 public:
  Ranks(const RankNotes& notes, bool survives_loss) : notes_(notes), survives_loss_(survives_loss) {}
  void add(pid_t process, int rank) { running_[process] = rank; }

  /// Returns when all ranks have ended and the run is done. \throws Error or Interrupted of the rank that failed
  void wait_for_all() {
    while (!running_.empty()) {
      int status = 0;
      const pid_t process = ::waitpid(-1, &status, WNOHANG);
      if (const auto found = running_.find(process); process > 0 && found != running_.end()) ended(found, status);
      if (deadline_ > 0 && seconds_now() > deadline_) kill_all();
      if (process <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (run_has_failed()) say_why();
  }

 private:
  void ended(std::map<pid_t, int>::iterator process, int status) {
    const int rank = process->second;
    running_.erase(process);
    const bool failed = status != 0;
    if (failed && !(is_killing_ && WIFSIGNALED(status))) failures_.push_back(end_of(rank, status));
    if (rank == 0) leader_is_done_ = !failed;
    if (rank == 0 || (failed && !survives_loss_)) begin_end();
    if (rank != 0 && failed && survives_loss_ && deadline_ <= 0)
      log::warning("[cluster] the other ranks continue without one: ", named(failures_.back()));
  }

  /// Returns why a rank ended: its own note, or what the status of its process says.
  RankEnd end_of(int rank, int status) const {
    if (auto told = notes_.read(rank)) return *told;
    if (WIFSIGNALED(status))
      return {.rank = rank,
              .time = seconds_now(),
              .text = concat("rank ", rank, " was killed by signal ", WTERMSIG(status), ": the others are ended")};
    return {
        .rank = rank,
        .time = seconds_now(),
        .text = concat("rank ", rank, " ended with exit code ", WEXITSTATUS(status), "; what it said stands above")};
  }

  /// The others have a few seconds to end by themselves.
  void begin_end() {
    if (deadline_ <= 0) deadline_ = seconds_now() + kPatience;
  }

  void kill_all() {
    is_killing_ = true;
    for (const auto& [process, rank] : running_) ::kill(process, SIGKILL);
  }

  bool run_has_failed() const { return !failures_.empty() && !(leader_is_done_ && survives_loss_); }

  static std::string named(const RankEnd& failure) {
    return failure.text.starts_with("rank ") ? failure.text : concat("rank ", failure.rank, ": ", failure.text);
  }

  [[noreturn]] void say_why() const {
    const auto& cause = cause_of(failures_, survives_loss_);
    for (const auto& failure : failures_)
      if (&failure != &cause) log::error("[cluster] ", named(failure));
    if (leader_is_done_) events::leave_off();  // rank 0 has written the last event
    rethrow(cause);
  }

  const RankNotes& notes_;
  bool survives_loss_;
  std::map<pid_t, int> running_;
  std::vector<RankEnd> failures_;
  double deadline_ = 0;  // of seconds_now(); 0: no rank has failed
  bool is_killing_ = false, leader_is_done_ = false;
};

}  // namespace

Launch spawn(int ranks, bool survives_loss) {
  const auto address = listening_address();
  const pid_t parent = ::getpid();
  const RankNotes notes(ranks);
  Ranks children(notes, survives_loss);
  std::fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = ::fork();
    EK_CHECK(process >= 0, kIo, "--ranks, process ", rank + 1, ": ", no_process_text(errno, "--ranks"));
    if (process == 0) {
      begin_rank(parent);
      notes.belong_to(rank);
      ::setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);  // selects the rank's GPU (base/system/local_ranks.h)
      ::setenv("LOCAL_WORLD_SIZE", std::to_string(ranks).c_str(), 1);
      Launch launch{.rank = rank, .size = ranks, .store = address, .launcher = "--ranks"};
      launch.store.here = rank == 0;
      if (rank != 0) ::close(address.listening);
      return launch;
    }
    if (rank == 0) leader = process;
    children.add(process, rank);
  }
  ::close(address.listening);
  handle_stop_signals(hand_on);
  children.wait_for_all();
  std::_Exit(0);
}

}  // namespace evenkeel::cluster
