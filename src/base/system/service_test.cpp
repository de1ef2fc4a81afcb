#include "base/system/service.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/plain/error.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

/// A service manager's socket.
class Manager {
 public:
  /// \param name  a path, or "@" and a name of an abstract socket
  explicit Manager(const std::string& name) : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Manager() {
    ::close(socket_);
    ::unsetenv("NOTIFY_SOCKET");
  }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  /// Returns the next datagram, or "" if there is none.
  std::string next() {
    char text[512];
    const auto size = ::recv(socket_, text, sizeof text, 0);
    return size < 0 ? std::string() : std::string(text, static_cast<size_t>(size));
  }

 private:
  int socket_;
};

TEST(Service, AStatusArrivesAtAPathAsOneLine) {
  const testing::TemporaryFolder folder;
  Manager manager((folder.path() / "notify").string());
  notify_status("round 3 of 9\nREADY=1");
  EXPECT_EQ(manager.next(), "STATUS=round 3 of 9 READY=1");
  EXPECT_EQ(manager.next(), "");
}

TEST(Service, AStatusArrivesAtAnAbstractSocket) {
  Manager manager(concat("@evenkeel-test-", ::getpid()));
  notify_status("waiting");
  EXPECT_EQ(manager.next(), "STATUS=waiting");
}

TEST(Service, ReadinessIsReportedOnce) {
  const testing::TemporaryFolder folder;
  Manager manager((folder.path() / "notify").string());
  notify_ready();
  notify_ready();
  EXPECT_EQ(manager.next(), "READY=1");
  EXPECT_EQ(manager.next(), "");
}

TEST(Service, NothingIsSentWithoutAWatchdog) {
  const testing::TemporaryFolder folder;
  Manager manager((folder.path() / "notify").string());
  EXPECT_FALSE(alive_or_interrupted());
  EXPECT_EQ(manager.next(), "");
}

TEST(Service, AnAddressThatIsNoneIsLeftAlone) {
  for (const auto& name :
       std::vector<std::string>{"", "@", "/", "relative", "/nowhere/notify", std::string(300, '/')}) {
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    EXPECT_NO_THROW(notify_status("x"));
  }
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_NO_THROW(notify_status("x"));
}

}  // namespace
}  // namespace evenkeel
