/// \file  What a message holds, as plain data: named records of configuration, of metrics and of arrays. Flower's
/// RecordDict with its ConfigRecord, MetricRecord and ArrayRecord; bytes and integers, no tensors. Example:
///   Content content;
///   content.add("config", Config{{"server-round", int64_t{3}}, {"layout", "9f2c"}});
///   content.add("arrays", pack_arrays(std::move(arrays), {.owner = bundle}));
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/plain/error.h"
#include "flower/format/npy.h"

namespace evenkeel::wire {

/// Bytes that are no text.
struct Bytes {
  std::string data;
  bool operator==(const Bytes&) const = default;
};

/// What a record may name: Python's int arrives as int64_t, float as double.
using Value =
    std::variant<double, int64_t, uint64_t, bool, std::string, Bytes, std::vector<double>, std::vector<int64_t>,
                 std::vector<uint64_t>, std::vector<bool>, std::vector<std::string>, std::vector<Bytes>>;

/// "double", "list of int64", ... for messages.
std::string_view kind_of(const Value& value);

/// Values by name, in the order in which they were set.
class Items {
 public:
  using Entry = std::pair<std::string, Value>;

  Items() = default;
  Items(std::initializer_list<Entry> entries);

  /// Adds, or replaces in its place.
  void set(std::string name, Value value);
  void add(std::string name, Value value);         ///< of a name that is not there yet; no look at the others
  const Value* find(std::string_view name) const;  ///< null when it is not there
  /// \throws kData naming `name` when it is absent or of another kind.
  template <typename T>
  const T& at(std::string_view name) const {
    const Value* value = find(name);
    EK_CHECK(value, kData, "a record has no \"", name, "\"");
    const T* typed = std::get_if<T>(value);
    EK_CHECK(typed, kData, "\"", name, "\" is of kind ", kind_of(*value), ", expected ", kind_of(Value(T())));
    return *typed;
  }
  template <typename T>
  T get_or(std::string_view name, T otherwise) const {
    return find(name) ? at<T>(name) : otherwise;
  }

  const std::vector<Entry>& entries() const { return entries_; }
  bool operator==(const Items&) const = default;

 private:
  std::vector<Entry> entries_;
};

struct Config : Items {
  using Items::Items;
  Config() = default;
  explicit Config(Items items) : Items(std::move(items)) {}
};
/// Numbers and lists of numbers alone. \throws kData on encoding when another kind is among them.
struct Metrics : Items {
  using Items::Items;
  Metrics() = default;
  explicit Metrics(Items items) : Items(std::move(items)) {}
};

/// An array that is to be sent: its data in C order and little-endian, in one or several pieces, which are borrowed.
struct ArrayData {
  ArrayHead head;
  std::vector<std::span<const std::byte>> pieces;
};

class PackedArrays;  // flower/format/objects.h: hashed and cut into chunks once, whoever it is sent to

/// A record of arrays. Of what arrived `packed` is null and the data is where its BufferAllocator put it.
struct Arrays {
  std::vector<ArrayHead> heads;
  std::shared_ptr<const PackedArrays> packed{};
};

struct PackOptions {
  size_t chunk_bytes = size_t{16} << 20;  ///< of an array's image, 1 KiB or more: each chunk is a call of its own
  std::shared_ptr<const void> owner{};    ///< keeps what the pieces borrow alive for as long as it may be sent
};
using Record = std::variant<Config, Metrics, Arrays>;

/// The records of a message by name, in order. Flower's apps call them "arrays", "config" and "metrics".
class Content {
 public:
  void add(std::string name, Record record);
  /// \throws kData naming `name` when there is no such record, or it is of another kind.
  const Config& config(std::string_view name = "config") const;
  const Metrics& metrics(std::string_view name = "metrics") const;
  const Arrays& arrays(std::string_view name = "arrays") const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const Record* find(std::string_view name) const;
  const std::vector<std::pair<std::string, Record>>& records() const { return records_; }
  /// The heads of all records of arrays, in order.
  std::vector<ArrayHead> heads() const;

 private:
  std::vector<std::pair<std::string, Record>> records_;
};

/// Where the data of arriving arrays goes.
struct ReceiveBuffers {
  std::vector<std::span<std::byte>> arrays;  ///< one for each of Content::heads(), of exactly its bytes
  std::shared_ptr<void> owner{};             ///< kept until the message is whole or given up
};
/// Called once per message, when its structure is known and before any data is placed: reads kinds, names, dtypes and
/// shapes, and says where the data goes. May throw: the message is then refused, and the sender told what() says. What
/// arrives is checked by length and SHA-256 chunk by chunk, after it was written: places hold no message until it is
/// whole. Called by a thread of the wire's own.
using BufferAllocator = std::function<ReceiveBuffers(const Content&)>;

/// What a message may be at most. Beyond any of it the message is refused with one line.
struct Limits {
  size_t objects = 65'536;              ///< of a message, which is a tree of five levels at most
  size_t structure = size_t{32} << 20;  ///< bytes of all objects other than chunks: names, shapes, values
  size_t record = size_t{8} << 20;      ///< bytes of one ConfigRecord or MetricRecord
  size_t chunk = size_t{64} << 20;      ///< bytes of a chunk, and of whatever is one request's or answer's body
  size_t arrays = 16'384;               ///< of a message
  size_t axes = 16;                     ///< of an array
  uint64_t data = uint64_t{16} << 30;   ///< bytes of all arrays of a message
};

}  // namespace evenkeel::wire
