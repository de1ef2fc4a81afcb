/// \file  How this program and an app of Flower's speak on one machine: lines of JSON over a Unix stream socket, and a
/// memfd beside a line for the arrays that belong to it. docs/flower-app.md is the protocol. Example:
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

namespace evenkeel::wire {

/// The version of docs/flower-app.md that both ends have to speak.
inline constexpr int64_t kAppProtocol = 1;

/// Memory that another process can be handed, sealed against changes once it is.
class SharedMemory {
 public:
  /// Of `bytes`, writable until sealed. \throws kIo
  static std::shared_ptr<SharedMemory> make(size_t bytes);
  /// What another process handed over; takes the descriptor. \throws kData when it is shorter than `bytes`, or could
  /// become so.
  static std::shared_ptr<SharedMemory> of(int descriptor, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Empty once it is sealed here.
  std::span<std::byte> bytes() const { return {data_, data_ ? size_ : 0}; }
  size_t size() const { return size_; }
  int descriptor() const { return descriptor_; }
  /// No more writing, here either.
  void seal();

 private:
  SharedMemory(int descriptor, std::byte* data, size_t size) : descriptor_(descriptor), data_(data), size_(size) {}
  int descriptor_;
  std::byte* data_;
  size_t size_;
};

struct Line {
  Json json;
  std::shared_ptr<SharedMemory> memory{};  ///< where the line has "bytes" above 0
};

/// Asked while waiting; true ends the wait.
using StopWaiting = std::function<bool()>;

/// One connection. One thread uses it.
class LineSocket {
 public:
  explicit LineSocket(int descriptor) : descriptor_(descriptor) {}
  ~LineSocket();
  LineSocket(LineSocket&& other) noexcept;
  LineSocket& operator=(LineSocket&&) = delete;

  /// \param memory  sealed; "bytes" is added to `line`. \throws kIo when nobody listens any more
  void send(OrderedJson line, const std::shared_ptr<SharedMemory>& memory = {});
  /// Nothing when the other side is gone, or `stop` says so. \throws kData for a line that is no JSON object, longer
  /// than 64 MiB, or lacks its memory.
  std::optional<Line> receive(const StopWaiting& stop);

 private:
  bool fill(const StopWaiting& stop);

  int descriptor_;
  std::string text_;           // read and not used yet
  std::vector<int> memories_;  // descriptors that came with it
};

/// A socket in the file system, readable and writable by its owner alone.
class LineListener {
 public:
  /// \throws kIo when something is there already, or cannot be made.
  explicit LineListener(std::filesystem::path path);
  ~LineListener();
  LineListener(const LineListener&) = delete;
  LineListener& operator=(const LineListener&) = delete;

  /// Nothing when `stop` says so.
  std::optional<LineSocket> accept(const StopWaiting& stop);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace evenkeel::wire
