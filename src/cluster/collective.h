/// \file  What the processes of a run on several machines exchange, in bytes and integers: a store of small values that
/// all can see, and operations of a group that all its members call at once. Tensors are another room's business, and
/// what carries the bytes is one file's (cluster/gloo.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace evenkeel::cluster {

/// Keys and small values that all ranks see; never bulk. Every call may \throw kIo when the store is out of reach.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Does not wait.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  /// The number under `key` afterwards; it begins at 0.
  virtual int64_t add(const std::string& key, int64_t by) = 0;
};

/// Where the store is.
struct BoardAddress {
  std::string host;
  uint16_t port = 0;
  bool here = false;   ///< this process keeps it
  int listening = -1;  ///< a socket that does already, for who keeps it; -1: none
};

/// A group of ranks, numbered from 0. All but send and receive are called by all members, in one order. An operation
/// in which nothing moves for the group's timeout \throws kIo, and one whose peer died does within moments.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  /// Everybody gets it.
  virtual void sum(std::span<int64_t> values) = 0;
  virtual void max(std::span<int64_t> values) = 0;
  virtual void send(std::span<const std::byte> bytes, int to) = 0;
  virtual void receive(std::span<std::byte> bytes, int from) = 0;
};

/// Bytes per operation: large ones go in slices, whose staging memory is bounded.
constexpr size_t kSlice = size_t{16} << 20;

/// Whether this program can run in a group at all: its LibTorch brings Gloo.
bool has_gloo();

/// \param timeout_s  to reach it at first. \throws kIo naming the address; kConfig without Gloo
std::unique_ptr<RendezvousStore> make_board(const BoardAddress& address, double timeout_s);

struct GroupPlace {
  std::string name;  ///< of the group: keys of another group are not these
  int rank = 0, size = 1;
  std::string device{};  ///< network interface; empty: the one that leads to the store
  double timeout_s = 60;
};
/// Waits until all members are there. \param store  of make_board()
std::unique_ptr<Collective> make_group(RendezvousStore& store, const BoardAddress& address, const GroupPlace& place);

}  // namespace evenkeel::cluster
