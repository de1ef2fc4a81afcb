// Measures what ranks exchange in a round on this machine: a broadcast of a state, and sums of as many values over all
// ranks. For comparison it sends the same bytes through one loopback socket in the same run. The ratio can be compared
// between machines, the seconds cannot.
//   cluster_bench --mib 372 --ranks 4       372 MiB: OLMoE-1B-7B's adapter in bfloat16; 195 M sums of 8 bytes each
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "cluster/collective.h"

namespace {

using namespace evenkeel::cluster;

struct Loopback {
  int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  uint16_t port = 0;
  Loopback() {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof name;
    if (::bind(fd, reinterpret_cast<sockaddr*>(&name), length) != 0 || ::listen(fd, 16) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0)
      std::exit(1);
    port = ntohs(name.sin_port);
  }
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Sends `bytes` through one socket, from another thread to this one. Returns the seconds.
double through_a_socket(size_t bytes) {
  const Loopback loopback;
  std::vector<char> from(kSlice, 1), to(kSlice);
  std::jthread sender([&] {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons(loopback.port);
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) std::exit(1);
    for (size_t sent = 0; sent < bytes;) {
      const auto part = ::write(fd, from.data(), std::min(kSlice, bytes - sent));
      if (part <= 0) break;
      sent += static_cast<size_t>(part);
    }
    ::close(fd);
  });
  const int fd = ::accept(loopback.fd, nullptr, nullptr);
  const double seconds = seconds_of([&] {
    while (::read(fd, to.data(), to.size()) > 0) {
    }
  });
  ::close(fd);
  ::close(loopback.fd);
  return seconds;
}

long peak_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

/// Measures until all ranks are done. The second pass counts.
void measure(int ranks, size_t bytes, double socket_s) {
  const Loopback loopback;
  std::fflush(nullptr);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    const StoreAddress address{.host = "127.0.0.1", .port = loopback.port, .here = rank == 0, .listening = loopback.fd};
    const auto board = make_store(address, 30);
    const auto group = make_group(*board, address, {.name = "bench/", .rank = rank, .size = ranks, .timeout_s = 60});
    std::vector<int64_t> one{1};
    const auto pass = [&](const std::function<void()>& work) {
      double seconds = 0;
      for (int i = 0; i < 2; ++i) {
        group->sum(one);
        seconds = seconds_of([&] {
          work();
          group->sum(one);
        });
      }
      return seconds;
    };
    std::vector<std::byte> state(bytes);
    const double broadcast_s = pass([&] { group->broadcast(state, 0); });
    state = {};
    std::vector<int64_t> sums(bytes / 2);  // two bytes per value, eight per sum
    const long before = peak_mib();
    const double sum_s = pass([&] { group->sum(sums); });
    if (rank == 0)
      std::printf(
          "%d ranks: state %.2f s (%.1f x one socket), sums %.2f s (%.1f x its bytes), %ld MiB beside the sums\n",
          ranks, broadcast_s, broadcast_s / socket_s, sum_s, sum_s / (4 * socket_s), peak_mib() - before);
    std::fflush(nullptr);
    ::_exit(0);
  }
  ::close(loopback.fd);
  for (const auto process : processes) ::waitpid(process, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  size_t mib = 8;
  int most = 2;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--mib") == 0) mib = std::strtoul(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--ranks") == 0) most = std::atoi(argv[i + 1]);
  }
  if (!has_gloo()) {
    std::puts("no Gloo in this LibTorch: nothing to measure");
    return 0;
  }
  const size_t bytes = mib << 20;
  through_a_socket(bytes);
  const double socket_s = through_a_socket(bytes);
  std::printf("%zu MiB through one loopback socket: %.2f s\n", mib, socket_s);
  for (int ranks = 2; ranks <= most; ranks += 2) measure(ranks, bytes, socket_s);
}
