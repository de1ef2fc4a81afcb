#include "host/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/os_error.h"

namespace evenkeel::host {
namespace {

constexpr size_t kMostBytes = size_t{256} << 20;  // of a message; tensors are not part of it
constexpr int kWaitMilliseconds = 100;
constexpr std::string_view kSource = "a message of the host";

/// The ancillary data of a message with one descriptor.
union Control {
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

bool is_gone(int error) { return error == EPIPE || error == ECONNRESET; }

/// Sends bytes, the first of them with a descriptor.
void send_all(int socket, std::string_view bytes, int descriptor) {
  while (!bytes.empty()) {
    iovec piece{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    Control control{};
    msghdr head{};
    head.msg_iov = &piece;
    head.msg_iovlen = 1;
    if (descriptor >= 0) {
      head.msg_control = &control;
      head.msg_controllen = sizeof control;
      auto* part = CMSG_FIRSTHDR(&head);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(part), &descriptor, sizeof(int));
    }
    const auto sent = ::sendmsg(socket, &head, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && is_gone(errno)) throw Channel::Closed();
    EK_CHECK(sent >= 0, kIo, "the host of the method takes no message: ", os_error_text(errno));
    bytes.remove_prefix(static_cast<size_t>(sent));
    descriptor = -1;
  }
}

}  // namespace

void Channel::send(std::string_view text, int descriptor) const {
  const auto length = static_cast<uint32_t>(text.size());
  std::array<char, sizeof length> head{};
  std::memcpy(head.data(), &length, sizeof length);
  send_all(socket_.get(), {head.data(), head.size()}, descriptor);
  send_all(socket_.get(), text, -1);
}

void Channel::read_exactly(char* to, size_t bytes, Descriptor* descriptor, const std::function<void()>& wait) const {
  while (bytes > 0) {
    pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, kWaitMilliseconds) <= 0) {
      wait();
      continue;
    }
    iovec piece{.iov_base = to, .iov_len = bytes};
    Control control{};
    msghdr head{};
    head.msg_iov = &piece;
    head.msg_iovlen = 1;
    head.msg_control = &control;
    head.msg_controllen = sizeof control;
    const auto got = ::recvmsg(socket_.get(), &head, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || (got < 0 && is_gone(errno))) throw Closed();
    EK_CHECK(got > 0, kIo, "the host of the method cannot be read: ", os_error_text(errno));
    const auto* part = CMSG_FIRSTHDR(&head);
    if (part && part->cmsg_type == SCM_RIGHTS) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
      Descriptor received(fd);
      if (descriptor) *descriptor = std::move(received);
    }
    to += got;
    bytes -= static_cast<size_t>(got);
  }
}

Message Channel::receive(const std::function<void()>& wait) const {
  Message message;
  uint32_t length = 0;
  read_exactly(reinterpret_cast<char*>(&length), sizeof length, &message.descriptor, wait);
  EK_CHECK(length <= kMostBytes, kData, kSource, " has ", length, " bytes, allowed: up to ", kMostBytes);
  std::string text(length, '\0');
  read_exactly(text.data(), text.size(), nullptr, wait);
  message.json = parse_json(text, kSource, kData);
  return message;
}

}  // namespace evenkeel::host
