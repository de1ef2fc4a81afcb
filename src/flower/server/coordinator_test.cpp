#include "flower/server/coordinator.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <thread>

#include "base/testing.h"

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
