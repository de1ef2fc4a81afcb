/// \file  Declares the content of a message as plain data: named records of configuration, metrics and arrays. They are
/// Flower's RecordDict with its ConfigRecord, MetricRecord and ArrayRecord, without tensors. Example:
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

namespace evenkeel::flower {

/// Holds a value of Python's type bytes.
struct Bytes {
  std::string data;
  bool operator==(const Bytes&) const = default;
};

/// A value of a record. Python's int arrives as int64_t, its float as double.
using Value =
    std::variant<double, int64_t, uint64_t, bool, std::string, Bytes, std::vector<double>, std::vector<int64_t>,
                 std::vector<uint64_t>, std::vector<bool>, std::vector<std::string>, std::vector<Bytes>>;

/// Returns the name of the value's type for messages, such as "double" or "list of int64".
std::string_view kind_of(const Value& value);

/// Holds named values in insertion order.
class Items {
 public:
  using Entry = std::pair<std::string, Value>;

  Items() = default;
  Items(std::initializer_list<Entry> entries);

  /// Adds a value, or replaces the value with this name in its position.
  void set(std::string name, Value value);
  void add(std::string name, Value value);         ///< appends; the name must be new, which is not checked
  const Value* find(std::string_view name) const;  ///< null when it is not there
  /// Returns the value with this name. \throws kData naming `name` when there is none or it has another type.
  template <typename T>
  const T& at(std::string_view name) const {
    const Value* value = find(name);
    EK_CHECK(value, kData, "a record has no \"", name, "\"");
    const T* typed = std::get_if<T>(value);
    EK_CHECK(typed, kData, "\"", name, "\" is of kind ", kind_of(*value), ", expected ", kind_of(Value(T())));
    return *typed;
  }

  const std::vector<Entry>& entries() const { return entries_; }
  bool operator==(const Items&) const = default;

 private:
  std::vector<Entry> entries_;
};

/// A record of configuration: values of any type.
struct Config : Items {
  using Items::Items;
  Config() = default;
  explicit Config(Items items) : Items(std::move(items)) {}
};
/// A record of metrics: numbers and lists of numbers only. Encoding throws kData for other types.
struct Metrics : Items {
  using Items::Items;
  Metrics() = default;
  explicit Metrics(Items items) : Items(std::move(items)) {}
};

/// An array to send. Its data is borrowed: little-endian, in C order, in one or several pieces.
struct ArrayData {
  ArrayHead head;
  std::vector<std::span<const std::byte>> pieces;
};

class PackedArrays;  // flower/format/objects.h: arrays that are hashed and divided into chunks once for all receivers

/// A record of arrays. In a received record `packed` is null, and the data is in the buffers that the BufferAllocator
/// returned.
struct Arrays {
  std::vector<ArrayHead> heads;
  std::shared_ptr<const PackedArrays> packed{};
};

/// Options of pack_arrays().
struct PackOptions {
  /// Bytes per chunk of an array's NumPy image, at least 1024. Each chunk is one call.
  size_t chunk_bytes = size_t{16} << 20;
  std::shared_ptr<const void> owner{};  ///< keeps the borrowed pieces alive while the arrays may still be sent
};
using Record = std::variant<Config, Metrics, Arrays>;

/// Holds the records of a message by name, in order. Flower's apps name them "arrays", "config" and "metrics".
class Content {
 public:
  /// Adds a record. \throws kData when the name is taken
  void add(std::string name, Record record);
  /// Returns a record by name. \throws kData when there is none, or when it is of another type
  const Config& config(std::string_view name = "config") const;
  const Metrics& metrics(std::string_view name = "metrics") const;
  const Arrays& arrays(std::string_view name = "arrays") const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const Record* find(std::string_view name) const;
  const std::vector<std::pair<std::string, Record>>& records() const { return records_; }
  /// Returns the heads of the arrays of all array records, in order.
  std::vector<ArrayHead> heads() const;

 private:
  std::vector<std::pair<std::string, Record>> records_;
};

/// The buffers for a message's arrays.
struct ReceiveBuffers {
  std::vector<std::span<std::byte>> arrays;  ///< one buffer per Content::heads(), of exactly its number of bytes
  std::shared_ptr<void> owner{};             ///< kept alive until the message is complete or abandoned
  bool wanted = true;  ///< false: the message is received without the data of its arrays, and `arrays` is empty
};
/// Returns buffers for a message's arrays. It is called once per message, when the message's structure is known and
/// before any data is stored. The calling thread may be one of the transport. An exception rejects the message, and the
/// sender gets what(). Data is written to the buffers before it is verified, so it is valid only when the message is
/// complete.
using BufferAllocator = std::function<ReceiveBuffers(const Content&)>;

/// The limits of a message. A message beyond any of them is refused.
struct Limits {
  size_t objects = 65'536;              ///< objects per message; the tree has at most five levels
  size_t structure = size_t{32} << 20;  ///< bytes of all objects other than chunks
  size_t record = size_t{8} << 20;      ///< bytes of one ConfigRecord or MetricRecord
  size_t chunk = size_t{64} << 20;      ///< bytes of a chunk, and of the body of a request or answer
  size_t arrays = 16'384;               ///< arrays per message
  size_t axes = 16;                     ///< axes per array
  uint64_t data = uint64_t{16} << 30;   ///< bytes of all arrays of a message
};

}  // namespace evenkeel::flower
