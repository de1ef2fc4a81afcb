/// \file  A server that forks evenkeel for each command (forked.py), because starting LibTorch takes longer than
/// refusing invalid input. Usage: `fork_server PROGRAM`, where PROGRAM is the name that commands print. stdin is a
/// sequenced-packet socket. A request is one packet with NUL-terminated words (working folder and arguments) and the
/// command's stdin, stdout and stderr as ancillary data. The answer is the status of waitpid(). The server ends when
/// the socket is closed.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

#include "apps/program.h"

namespace {

constexpr int kSocket = STDIN_FILENO;
using Streams = std::array<int, 3>;

/// Receives a request. \return false at the end of the socket or for an invalid request
bool receive(std::vector<char>& words, Streams& streams) {
  iovec part{words.data(), words.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Streams))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto size = ::recvmsg(kSocket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* passed = CMSG_FIRSTHDR(&message);
  if (size <= 0 || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || !passed ||
      passed->cmsg_len != CMSG_LEN(sizeof(Streams)))
    return false;
  std::memcpy(streams.data(), CMSG_DATA(passed), sizeof(Streams));
  words.resize(static_cast<size_t>(size));
  return words.back() == '\0';
}

/// Runs the command in the forked process.
[[noreturn]] void be_the_program(char* program, std::vector<char>& words, const Streams& streams) {
  std::vector<char*> arguments;
  for (char* word = words.data(); word < words.data() + words.size(); word += std::strlen(word) + 1)
    arguments.push_back(word);
  if (::chdir(arguments.at(0)) != 0) ::_exit(126);
  for (int i = 0; i < 3; ++i) {
    if (::dup2(streams[i], i) != i) ::_exit(126);
    ::close(streams[i]);
  }
  arguments[0] = program;
  const int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  evenkeel::apps::run_and_exit(count, arguments.data());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  for (;;) {
    std::vector<char> words(1 << 20);
    Streams streams{};
    if (!receive(words, streams)) return 0;
    const pid_t child = ::fork();
    if (child == 0) be_the_program(argv[1], words, streams);
    for (const int stream : streams) ::close(stream);
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || ::send(kSocket, &status, sizeof(status), 0) < 0) return 1;
  }
}
