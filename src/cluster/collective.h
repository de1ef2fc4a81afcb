/// \file  Declares how the processes of a distributed run communicate: a key-value store for small values that all
/// ranks can read, and collective operations on bytes and integers. Only cluster/gloo.cpp implements them. Tensors are
/// handled elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace evenkeel::cluster {

/// A key-value store that all ranks share, for small values. Threads: each needs an object of its own, which connects
/// separately. \throws kIo from every call when the store cannot be reached
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  /// Stores `value` under `key`, in the place of an earlier value.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Returns the value of `key`, or nullopt if it is not set. Does not wait.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  /// Adds `by` to the number under `key`, which starts at 0, and returns the new number.
  virtual int64_t add(const std::string& key, int64_t by) = 0;
};

/// Network address of the store.
struct StoreAddress {
  std::string host;
  uint16_t port = 0;
  bool here = false;   ///< this process hosts the store
  int listening = -1;  ///< for the host: a socket that already listens on the port, or -1
};

/// A group of ranks, numbered from 0. All members call the operations in the same order; send and receive concern two
/// members only. Not thread-safe. \throws kIo from every operation when no data moves for the group's timeout, and at
/// once when the peer process has died
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Copies the bytes of rank `root` to all members.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  /// Replace each value by its sum or maximum over all members.
  virtual void sum(std::span<int64_t> values) = 0;
  virtual void max(std::span<int64_t> values) = 0;
  /// Send bytes to, or receive them from, one member. Both sides must pass the same length.
  virtual void send(std::span<const std::byte> bytes, int to) = 0;
  virtual void receive(std::span<std::byte> bytes, int from) = 0;
};

/// Maximum bytes per transfer. Larger operations are split, which bounds the staging memory.
constexpr size_t kSlice = size_t{16} << 20;

/// Returns true when this LibTorch contains Gloo, so that this program can run in a group.
bool has_gloo();

/// Connects to the store, or hosts it if `address.here`.
/// \param timeout_s  seconds to wait for the first connection
/// \throws kIo naming the address; kConfig without Gloo
std::unique_ptr<RendezvousStore> make_store(const StoreAddress& address, double timeout_s);

/// Describes the membership of this process in a group.
struct GroupSettings {
  std::string name;  ///< name of the group, the prefix of its keys in the store
  int rank = 0, size = 1;
  std::string device{};   ///< network interface, e.g. "eth0"; empty: the interface with the route to the store
  double timeout_s = 60;  ///< seconds without transferred data after which an operation fails
};
/// Joins a group. Waits until all members have joined, at most the timeout of `settings`.
/// \param store  a result of make_store()
/// \throws kIo when members are missing after the timeout or `settings.device` is no interface; kInternal without Gloo
std::unique_ptr<Collective> make_group(RendezvousStore& store, const StoreAddress& address,
                                       const GroupSettings& settings);

}  // namespace evenkeel::cluster
