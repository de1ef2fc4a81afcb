/// \file  Shared memory in which tensors pass between the program and a host process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/channel.h"

namespace evenkeel::host {

/// A mapped piece of anonymous shared memory (memfd).
class Segment {
 public:
  /// Makes a segment. \throws kIo when the memory is full
  Segment(int64_t id, size_t bytes);
  /// Maps a segment that the other end has made. \throws kIo
  Segment(int64_t id, Descriptor descriptor);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  int64_t id() const { return id_; }
  size_t size() const { return bytes_; }
  int descriptor() const { return descriptor_.get(); }
  std::byte* data() const { return data_; }

 private:
  void map();

  int64_t id_;
  Descriptor descriptor_;
  size_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

/// A segment in use, and whether the other end has its descriptor already.
struct TakenSegment {
  std::shared_ptr<Segment> segment{};
  bool is_new = false;
};

/// The program's own segments. A segment is free again when the host holds no array in it.
class SegmentPool {
 public:
  /// Returns the smallest free segment that is large enough, or a new one: `bytes` rounded up to a power of two, at
  /// least 64 KiB. \throws kIo as Segment
  TakenSegment take(size_t bytes);
  void give_back(std::shared_ptr<Segment> segment) { free_.push_back(std::move(segment)); }

 private:
  std::vector<std::shared_ptr<Segment>> free_;
  int64_t next_id_ = 1;
};

}  // namespace evenkeel::host
