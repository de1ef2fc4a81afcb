#include "host/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <thread>

#include "base/plain/error.h"

namespace evenkeel::host {
namespace {

std::array<int, 2> connected() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return ends;
}

void never() {}

TEST(Channel, PassesALongMessageAndADescriptor) {
  const auto ends = connected();
  const Channel one{Descriptor(ends[0])}, other{Descriptor(ends[1])};
  const Json sent{{"text", std::string(1 << 20, 'x')}, {"numbers", {1, 2.5}}};
  const Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::thread sender([&] {
    one.send(sent.dump(), null.get());
    one.send("{}");
  });
  const auto got = other.receive(never);
  EXPECT_EQ(got.json, sent);
  EXPECT_GE(got.descriptor.get(), 0);
  EXPECT_LT(other.receive(never).descriptor.get(), 0);
  sender.join();
}

TEST(Channel, AnEndThatIsGoneIsNoticedByBothDirections) {
  const auto ends = connected();
  const Channel one{Descriptor(ends[0])};
  ::close(ends[1]);
  EXPECT_THROW(one.receive(never), Channel::Closed);
  EXPECT_THROW(one.send("{}"), Channel::Closed);
}

TEST(Channel, AMessageThatIsNotJsonIsRefused) {
  const auto ends = connected();
  const Channel one{Descriptor(ends[0])}, other{Descriptor(ends[1])};
  one.send("{\"half\": ");
  EXPECT_THROW(other.receive(never), Error);
}

TEST(Channel, AWaitCanBeEnded) {
  const auto ends = connected();
  const Channel one{Descriptor(ends[0])}, other{Descriptor(ends[1])};
  EXPECT_THROW(other.receive([] { throw std::runtime_error("enough"); }), std::runtime_error);
}

}  // namespace
}  // namespace evenkeel::host
