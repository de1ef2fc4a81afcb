#include "flower/server/coordinator.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string_view>
#include <thread>

#include "base/testing.h"

namespace {

std::atomic<int> failures_of_accept = 0, error_of_accept = 0;

}  // namespace

/// Takes the place of the C library's function in this program. It fails as often as a test says.
extern "C" int accept4(int socket, sockaddr* address, socklen_t* length, int flags) {
  if (failures_of_accept > 0) {
    --failures_of_accept;
    errno = error_of_accept;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_accept4, socket, address, length, flags));
}

namespace evenkeel::flower {
namespace {

int connected(int port) {
  const int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return file;
  ::close(file);
  return -1;
}

/// Asks for the metrics as soon as the port is open. \return the first bytes of the answer
std::string metrics_at(int port) {
  constexpr std::string_view kAsked = "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
  int file = -1;
  while (file < 0) file = connected(port);
  std::array<char, 15> answer{};
  const bool sent = ::send(file, kAsked.data(), kAsked.size(), MSG_NOSIGNAL) == std::ssize(kAsked);
  const auto length = sent ? ::recv(file, answer.data(), answer.size(), MSG_WAITALL) : 0;
  ::close(file);
  return {answer.data(), static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

TEST(CoordinatorTest, MetricsAreGivenToACallThatComesBeforeTheServerIsWhole) {
  const testing::TemporaryFolder folder;
  const int port = Coordinator({.port = 0, .insecure = true, .open = true, .folder = folder.path() / "first"}).port();
  for (int i = 0; i < 10; ++i) {
    std::string answer;
    std::jthread caller([&] { answer = metrics_at(port); });
    {
      const Coordinator coordinator(
          {.port = port, .insecure = true, .open = true, .folder = folder.path() / std::to_string(i)});
      caller.join();
    }
    EXPECT_EQ(answer, "HTTP/1.1 200 OK") << i;
  }
}

/// The connection for which the server waits already is accepted; the next attempts fail.
TEST(CoordinatorTest, AServerAcceptsConnectionsAgainAfterTheSystemHadNone) {
  const testing::TemporaryFolder folder;
  const Coordinator coordinator({.port = 0, .insecure = true, .open = true, .folder = folder.path()});
  for (const int error : {ENOBUFS, ENFILE, ENOMEM, ECONNABORTED}) {
    error_of_accept = error;
    failures_of_accept = 3;
    for (int i = 0; i < 2; ++i) EXPECT_EQ(metrics_at(coordinator.port()), "HTTP/1.1 200 OK") << error;
    EXPECT_EQ(failures_of_accept, 0) << error;
  }
}

TEST(CoordinatorTest, AServerThatCanAcceptNoConnectionEnds) {
  constexpr int kMany = 1'000'000;
  const testing::TemporaryFolder folder;
  {
    const Coordinator coordinator({.port = 0, .insecure = true, .open = true, .folder = folder.path()});
    error_of_accept = ENOBUFS;
    failures_of_accept = kMany;
    const int file = connected(coordinator.port());  // which the server accepts if it waits already
    while (failures_of_accept == kMany) std::this_thread::yield();
    ::close(file);
  }
  failures_of_accept = 0;
}

TEST(CoordinatorTest, AMessageToANodeThatIsNotRegisteredAnyMoreIsLost) {
  const testing::TemporaryFolder folder;
  Coordinator coordinator({.port = 0, .insecure = true, .open = true, .folder = folder.path()});
  const auto sent = coordinator.send(7, Content(), {});
  const auto arrival = coordinator.wait(std::chrono::steady_clock::now() + std::chrono::seconds(60));
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->message_id, sent);
  EXPECT_EQ(arrival->kind, Arrival::Kind::kLost);
}

}  // namespace
}  // namespace evenkeel::flower
