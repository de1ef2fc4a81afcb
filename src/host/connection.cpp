#include "host/connection.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/plain/clock.h"
#include "base/plain/data_path.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/os_error.h"
#include "base/plain/text.h"
#include "base/system/interrupt.h"

namespace evenkeel::host {
namespace {

using HostClock = std::chrono::steady_clock;

constexpr int kSocketOfHost = 3;         // descriptor of the child
constexpr double kGraceOfInterrupt = 5;  // seconds that a hook has after Ctrl-C
constexpr double kGraceOfEnd = 1;        // seconds that a host has to end by itself

/// Returns the folder of the package evenkeel_moe that belongs to the program; empty if there is none beside it.
std::string package_folder() {
  const auto shipped = shipped_folder();
  for (const auto& folder : {shipped / "python", shipped.parent_path().parent_path()})
    if (is_file(folder / "evenkeel_moe" / "_host.py")) return folder.string();
  return {};
}

std::string python() {
  const char* named = std::getenv("EVENKEEL_PYTHON");
  return named && *named != '\0' ? named : "python3";
}

struct SocketPair {
  Descriptor own, other;
};

SocketPair make_sockets() {
  std::array<int, 2> ends{};
  EK_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, kIo,
           "no socket to a method in Python: ", os_error_text(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

/// The arguments of posix_spawn. The host has a process group of its own, so that Ctrl-C of a terminal reaches the
/// program alone; what it prints goes to stderr, because stdout may be events.
class SpawnSetup {
 public:
  explicit SpawnSetup(int socket) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_adddup2(&actions_, STDERR_FILENO, STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, socket, kSocketOfHost);
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    sigset_t signals;
    ::sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes_, &signals);
    ::sigaddset(&signals, SIGINT);
    ::sigaddset(&signals, SIGTERM);
    ::posix_spawnattr_setsigdefault(&attributes_, &signals);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  ~SpawnSetup() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  pid_t start(const std::string& program, std::span<const std::string> words) const {
    std::vector<char*> pointers{const_cast<char*>(program.c_str())};
    for (const auto& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    pid_t child = 0;
    const int error = ::posix_spawnp(&child, program.c_str(), &actions_, &attributes_, pointers.data(), environ);
    EK_CHECK(error == 0, kIo, program, ": cannot be started: ", os_error_text(error),
             "; EVENKEEL_PYTHON names a Python that can");
    return child;
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

/// Starts the host. \param socket  its end of the connection
pid_t start_host(int socket) {
  const auto folder = package_folder();
  constexpr const char* kCode =
      "import sys; sys.path[:0] = sys.argv[2:]; from evenkeel_moe import _host; _host.serve(int(sys.argv[1]))";
  std::vector<std::string> words{"-c", kCode, std::to_string(kSocketOfHost)};
  if (!folder.empty()) words.push_back(folder);
  // A copy above the number that it gets in the child, where dup2() of a number to itself keeps close-on-exec.
  const Descriptor copy(::fcntl(socket, F_DUPFD_CLOEXEC, kSocketOfHost + 1));
  return SpawnSetup(copy.get()).start(python(), words);
}

Descriptor connected(const fs::path& socket) {
  Descriptor made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto name = socket.string();
  EK_CHECK(name.size() < sizeof address.sun_path, kIo, name, " is too long for the path of a socket");
  std::memcpy(address.sun_path, name.data(), name.size());
  EK_CHECK(::connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, kIo, name,
           ": nobody listens there: ", os_error_text(errno));
  return made;
}

bool is_method_socket(const fs::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
}

/// Waits for a child that is about to end. \return false when it still runs after the time that it has
bool wait_for(pid_t child, int& status) {
  for (const auto since = HostClock::now(); seconds_since(since) < kGraceOfEnd;) {
    if (::waitpid(child, &status, WNOHANG) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

std::string end_text(int status) {
  if (WIFSIGNALED(status)) return concat("was killed by signal ", WTERMSIG(status));
  return concat("ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

MethodSource MethodSource::read(const std::string& text) {
  const auto colon = text.rfind(':');
  const bool is_whole = colon != text.npos && colon > 0 && colon + 1 < text.size();
  EK_CHECK(is_whole, kConfig, "--method is ", shown(text), ", allowed: FILE.py:CLASS");
  MethodSource source{fs::absolute(expand_home(text.substr(0, colon), "--method")), text.substr(colon + 1)};
  EK_CHECK(is_file(source.file) || is_method_socket(source.file), kIo, "--method: ", source.file.string(),
           " is no file");
  return source;
}

Connection::Connection(const MethodSource& source) : owner_(::getpid()), channel_(Descriptor()) {
  if (is_method_socket(source.file)) {
    channel_ = Channel(connected(source.file));
    return;
  }
  auto sockets = make_sockets();
  child_ = start_host(sockets.other.get());
  channel_ = Channel(std::move(sockets.own));
}

Connection::~Connection() {
  channel_ = Channel(Descriptor());
  if (child_ == 0 || !is_own()) return;
  if (int status = 0; !wait_for(child_, status)) kill_host();
}

void Connection::set_wait(std::string who, double seconds) {
  who_ = std::move(who);
  seconds_ = seconds;
}

std::shared_ptr<Segment> Connection::send(OrderedJson message, const Outgoing& tensors) try {
  if (tensors.bytes() == 0) {
    channel_.send(message.dump());
    return nullptr;
  }
  const auto taken = pool_.take(tensors.bytes());
  tensors.copy_to(*taken.segment);
  segments_[taken.segment->id()] = taken.segment;
  message["segment"] = taken.segment->id();
  channel_.send(message.dump(), taken.is_new ? taken.segment->descriptor() : -1);
  return taken.segment;
} catch (const Channel::Closed&) {
  ended();
}

Json Connection::receive() try {
  const auto since = HostClock::now();
  auto message = channel_.receive([&] { check_wait(since); });
  if (message.descriptor.get() >= 0) segments_[0] = std::make_shared<Segment>(0, std::move(message.descriptor));
  return std::move(message.json);
} catch (const Channel::Closed&) {
  ended();
}

void Connection::release(const std::vector<int64_t>& kept) {
  for (auto& [id, segment] : segments_)
    if (id != 0 && std::find(kept.begin(), kept.end(), id) == kept.end()) pool_.give_back(std::move(segment));
  std::erase_if(segments_, [](const auto& entry) { return entry.first != 0; });
}

bool Connection::is_own() const { return owner_ == ::getpid(); }

void Connection::check_wait(HostClock::time_point since) {
  if (seconds_since(since) > seconds_) {
    kill_host();
    fail(kIo, who_, " did not answer within ", seconds_, " s, its limit (`seconds` of the class)");
  }
  if (!interrupt_requested()) return;
  if (!interrupted_at_) interrupted_at_ = HostClock::now();
  if (seconds_since(*interrupted_at_) < kGraceOfInterrupt) return;
  kill_host();
  throw Interrupted(concat("stopped in ", who_));
}

void Connection::kill_host() {
  ended_ = true;
  if (child_ == 0 || !is_own()) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
  child_ = 0;
}

void Connection::ended() {
  ended_ = true;
  int status = 0;
  const bool is_known = child_ != 0 && is_own() && wait_for(child_, status);
  if (is_known) child_ = 0;
  fail(kIo, who_, ": its Python process ", is_known ? end_text(status) : "has closed the connection",
       "; what it printed stands above");
}

}  // namespace evenkeel::host
