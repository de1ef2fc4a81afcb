// This is the only file that uses LibTorch's process groups.
#include "cluster/collective.h"

#ifdef EVENKEEL_GLOO
#include <ATen/ops/from_blob.h>
#include <arpa/inet.h>
#include <c10/util/Flags.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

#include <algorithm>

#include "base/plain/address.h"
#include "base/plain/error.h"
#include "base/plain/os_error.h"

#ifdef EVENKEEL_GLOO
C10_DECLARE_int(caffe2_log_level);
#endif

namespace evenkeel::cluster {

#ifndef EVENKEEL_GLOO

bool has_gloo() { return false; }

std::unique_ptr<RendezvousStore> make_store(const StoreAddress&, double) {
  fail(kConfig, "several ranks need a LibTorch with Gloo, and this program was built with one that has none");
}

std::unique_ptr<Collective> make_group(RendezvousStore&, const StoreAddress&, const GroupSettings&) {
  fail(kInternal, "a group without Gloo");
}

#else

namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

/// Returns the first sentence of LibTorch's error message, without the source location.
std::string_view plain(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  if (const size_t end = text.find("] "); text.starts_with('[') && end != text.npos) text.remove_prefix(end + 2);
  return text.substr(0, text.find(". "));
}

/// Turns off LibTorch's own logging. It prints a stack trace for every lost connection, which our errors report
/// already.
void silence_library() { FLAGS_caffe2_log_level = 3; }

/// Runs `work`. An exception of LibTorch becomes an Error with one line that names the attempted operation `what`.
template <typename Work>
auto attempt(const std::string& what, const Work& work) {
  try {
    return work();
  } catch (const std::system_error& error) {
    if (is_thread_limit(error)) throw os_error(error).with_context(what);
    fail(kIo, what, ": ", plain(error.what()));
  } catch (const std::exception& error) {
    fail(kIo, what, ": ", plain(error.what()));
  }
}

class TcpStore : public RendezvousStore {
 public:
  TcpStore(const StoreAddress& address, double timeout_s)
      : where_(concat("the store at ", address_text(address.host, address.port))) {
    c10d::TCPStoreOptions options;
    options.port = address.port;
    options.isServer = address.here;
    options.waitWorkers = false;
    options.timeout = milliseconds(timeout_s);
    if (address.here && address.listening >= 0) options.masterListenFd = address.listening;
    store_ = attempt(where_, [&] { return c10::make_intrusive<c10d::TCPStore>(address.host, options); });
  }

  void set(const std::string& key, const std::string& value) override {
    attempt(where_, [&] { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
  }
  std::optional<std::string> find(const std::string& key) override {
    return attempt(where_, [&]() -> std::optional<std::string> {
      if (!store_->check({key})) return std::nullopt;
      const auto value = store_->get(key);
      return std::string(value.begin(), value.end());
    });
  }
  int64_t add(const std::string& key, int64_t by) override {
    return attempt(where_, [&] { return store_->add(key, by); });
  }
  const c10::intrusive_ptr<c10d::TCPStore>& store() const { return store_; }

 private:
  std::string where_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

/// Returns the local address of the route to `host`.
std::string address_towards(const std::string& host, uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  EK_CHECK(::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) == 0, kIo, "cluster.store: ", host,
           " is no address that this machine knows");
  std::string own;
  for (const auto* one = found; one && own.empty(); one = one->ai_next) {
    const int probe = ::socket(one->ai_family, SOCK_DGRAM, 0);
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    char text[NI_MAXHOST] = "";
    if (probe >= 0 && ::connect(probe, one->ai_addr, one->ai_addrlen) == 0 &&
        ::getsockname(probe, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&name), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      own = text;
    if (probe >= 0) ::close(probe);
  }
  ::freeaddrinfo(found);
  EK_CHECK(!own.empty(), kIo, "cluster.store: no way leads to ", host);
  return own;
}

class GlooCollective : public Collective {
 public:
  GlooCollective(const TcpStore& store, const StoreAddress& address, const GroupSettings& settings)
      : rank_(settings.rank), size_(settings.size) {
    auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(settings.timeout_s));
    options->devices.push_back(attempt(concat("cluster.device: interface ", settings.device), [&] {
      return settings.device.empty()
                 ? c10d::ProcessGroupGloo::createDeviceForHostname(address_towards(address.host, address.port))
                 : c10d::ProcessGroupGloo::createDeviceForInterface(settings.device);
    }));
    const auto keys = c10::make_intrusive<c10d::PrefixStore>(settings.name, store.store());
    // Never destroyed: its destructor waits for what is under way, and who leaves does not wait.
    group_ = attempt(concat("joining group ", settings.name), [&] {
      return c10::make_intrusive<c10d::ProcessGroupGloo>(keys, settings.rank, settings.size, options).release();
    });
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void broadcast(std::span<std::byte> bytes, int root) override {
    in_slices("broadcast", bytes.data(), bytes.size(), [&](at::Tensor slice) {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      std::vector<at::Tensor> one{slice};
      return group_->broadcast(one, options);
    });
  }
  void sum(std::span<int64_t> values) override { reduce("sum", values, c10d::ReduceOp::SUM); }
  void max(std::span<int64_t> values) override { reduce("maximum", values, c10d::ReduceOp::MAX); }
  void send(std::span<const std::byte> bytes, int to) override {
    in_slices("send", const_cast<std::byte*>(bytes.data()), bytes.size(), [&](at::Tensor slice) {
      std::vector<at::Tensor> one{slice};
      return group_->send(one, to, kTag);
    });
  }
  void receive(std::span<std::byte> bytes, int from) override {
    in_slices("receive", bytes.data(), bytes.size(), [&](at::Tensor slice) {
      std::vector<at::Tensor> one{slice};
      return group_->recv(one, from, kTag);
    });
  }

 private:
  static constexpr int kTag = 1;

  /// \param start  an operation on [n] uint8
  template <typename Start>
  void in_slices(const char* what, std::byte* data, size_t size, const Start& start) {
    for (size_t begin = 0; begin < size; begin += kSlice) {
      const auto length = static_cast<int64_t>(std::min(kSlice, size - begin));
      attempt(what, [&] { start(at::from_blob(data + begin, {length}, at::kByte))->wait(); });
    }
  }

  void reduce(const char* what, std::span<int64_t> values, c10d::ReduceOp::RedOpType operation) {
    constexpr size_t kValues = kSlice / sizeof(int64_t);
    for (size_t begin = 0; begin < values.size(); begin += kValues) {
      const auto length = static_cast<int64_t>(std::min(kValues, values.size() - begin));
      attempt(what, [&] {
        std::vector<at::Tensor> one{at::from_blob(values.data() + begin, {length}, at::kLong)};
        c10d::AllreduceOptions options;
        options.reduceOp = operation;
        group_->allreduce(one, options)->wait();
      });
    }
  }

  int rank_, size_;
  c10d::ProcessGroupGloo* group_;
};

}  // namespace

bool has_gloo() { return true; }

std::unique_ptr<RendezvousStore> make_store(const StoreAddress& address, double timeout_s) {
  silence_library();
  return std::make_unique<TcpStore>(address, timeout_s);
}

std::unique_ptr<Collective> make_group(RendezvousStore& store, const StoreAddress& address,
                                       const GroupSettings& settings) {
  return std::make_unique<GlooCollective>(dynamic_cast<TcpStore&>(store), address, settings);
}

#endif

}  // namespace evenkeel::cluster
