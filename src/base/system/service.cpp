#include "base/system/service.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/plain/text.h"
#include "base/system/interrupt.h"

namespace evenkeel {
namespace {

using ServiceClock = std::chrono::steady_clock;

/// Returns the address of $NOTIFY_SOCKET. A leading "@" means an abstract socket.
std::optional<std::pair<sockaddr_un, socklen_t>> service_address() {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return std::nullopt;
  const size_t size = std::strlen(path);
  if (size < 2 || size >= sizeof address.sun_path) return std::nullopt;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, size);
  if (path[0] == '@') address.sun_path[0] = '\0';
  return std::pair{address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size)};
}

/// Sends a datagram. Failures are ignored, because the service manager may have ended.
void send_to_service(std::string_view text) {
  const auto address = service_address();
  if (!address) return;
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return;
  ::sendto(socket, text.data(), text.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address->first),
           address->second);
  ::close(socket);
}

/// Returns the interval of watchdog messages; zero: no watchdog.
std::chrono::microseconds watchdog_pause() {
  const char *usec = std::getenv("WATCHDOG_USEC"), *pid = std::getenv("WATCHDOG_PID");
  const auto own = pid == nullptr ? std::optional<int64_t>(::getpid()) : parse_number<int64_t>(pid);
  const auto most = parse_number<int64_t>(usec == nullptr ? "" : usec);
  return std::chrono::microseconds(most && *most > 0 && own == ::getpid() ? std::max<int64_t>(*most / 4, 1) : 0);
}

}  // namespace

void notify_ready() {
  static std::atomic<bool> done{false};
  if (!done.exchange(true)) send_to_service("READY=1");
}

void notify_status(std::string_view text) {
  std::string line = "STATUS=";
  for (const char c : text) line += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  send_to_service(line);
}

void notify_alive() {
  static const auto pause = watchdog_pause();
  static std::atomic<ServiceClock::rep> next{0};
  if (pause.count() == 0) return;
  const auto now = ServiceClock::now().time_since_epoch();
  auto due = next.load();
  if (now.count() < due) return;
  if (next.compare_exchange_strong(due, (now + ServiceClock::duration(pause)).count())) send_to_service("WATCHDOG=1");
}

bool alive_or_interrupted() {
  static std::atomic<bool> told{false};
  const bool stops = interrupt_requested();
  if (stops && !told.exchange(true)) send_to_service("STOPPING=1");
  if (!stops) notify_alive();
  return stops;
}

}  // namespace evenkeel
