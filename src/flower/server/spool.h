/// \file  Stores received bytes on disk until their destination is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/plain/descriptor.h"

namespace evenkeel::flower {

/// An unnamed temporary file of one message. It is deleted with the object or the process. For one thread at a time:
/// the server makes one for each message that arrives.
class Spool {
 public:
  /// \param folder  folder of the file, which the first put() creates
  /// \param most    largest size in bytes
  Spool(std::filesystem::path folder, uint64_t most) : folder_(std::move(folder)), most_(most) {}
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  /// Appends bytes and returns their offset.
  /// \throws kData when the file would be longer than `most` bytes; kIo when it cannot be made or written
  uint64_t put(std::string_view bytes);
  /// Reads `length` bytes at offset `at`. \throws kIo when the file is shorter or cannot be read
  std::string get(uint64_t at, size_t length) const;
  uint64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path folder_;
  uint64_t most_, bytes_ = 0;
  Descriptor file_;
};

}  // namespace evenkeel::flower
