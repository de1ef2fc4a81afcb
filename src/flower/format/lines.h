/// \file  Implements the local protocol between evenkeel and a Flower app: lines of JSON over a Unix stream socket,
/// with arrays in a memfd that is sent with its line. docs/json-lines.md defines the protocol. Example:
///   LineListener listener("/run/evenkeel/node.sock");
///   if (auto lines = listener.accept(stop))
///     while (auto line = lines->receive(stop)) lines->send(answer(*line));
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel::flower {

/// The version of the protocol in docs/json-lines.md. Both ends must use the same.
inline constexpr int64_t kAppProtocol = 1;

/// Memory that can be sent to another process. It must be sealed against changes first.
class SharedMemory {
 public:
  /// Allocates `bytes` bytes, writable until seal(). \throws kIo
  static std::shared_ptr<SharedMemory> make(size_t bytes);
  /// Maps received memory read-only, and owns the descriptor. \throws kData when it is shorter than `bytes`, or not
  /// sealed against shrinking
  static std::shared_ptr<SharedMemory> of(int descriptor, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Returns the bytes; empty after seal().
  std::span<std::byte> bytes() const { return {data_, data_ ? size_ : 0}; }
  size_t size() const { return size_; }
  int descriptor() const { return descriptor_; }
  /// Unmaps the memory and seals it against any change, also by this process.
  void seal();

 private:
  SharedMemory(int descriptor, std::byte* data, size_t size) : descriptor_(descriptor), data_(data), size_(size) {}
  int descriptor_;
  std::byte* data_;
  size_t size_;
};

struct Line {
  Json json;
  std::shared_ptr<SharedMemory> memory{};  ///< set if the line has "bytes" above 0
};

/// Polled while waiting; true ends the wait.
using StopWaiting = std::function<bool()>;

/// One connection. Threads: one.
class LineSocket {
 public:
  explicit LineSocket(int descriptor) : descriptor_(descriptor) {}
  ~LineSocket();
  LineSocket(LineSocket&& other) noexcept;
  LineSocket& operator=(LineSocket&&) = delete;

  /// Sends a line.
  /// \param memory  sealed; its size is added to `line` as "bytes"
  /// \throws kIo when the peer has gone
  void send(OrderedJson line, const std::shared_ptr<SharedMemory>& memory = {});
  /// Waits for a line. Returns nothing when the peer has gone or `stop` returns true. \throws kData for invalid JSON,
  /// more than 64 MiB, or missing memory
  std::optional<Line> receive(const StopWaiting& stop);

 private:
  bool fill(const StopWaiting& stop);

  int descriptor_;
  std::string text_;           // read and not used yet
  std::vector<int> memories_;  // descriptors that came with it
};

/// A Unix socket that only its owner may use.
class LineListener {
 public:
  /// Listens at `path`. A socket that a killed process left there is replaced.
  /// \throws kIo when the path exists or cannot be made; kConfig when it is too long
  explicit LineListener(std::filesystem::path path);
  ~LineListener();
  LineListener(const LineListener&) = delete;
  LineListener& operator=(const LineListener&) = delete;

  /// Waits for a connection. Returns nothing when `stop` returns true.
  std::optional<LineSocket> accept(const StopWaiting& stop);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace evenkeel::flower
