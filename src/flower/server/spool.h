/// \file  Bytes that wait on disk until it is known where they belong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace evenkeel::wire {

/// One file without a name, which is gone with the object or the process.
class Spool {
 public:
  /// \param most  bytes it may hold. The file is made with the first put().
  Spool(std::filesystem::path folder, uint64_t most) : folder_(std::move(folder)), most_(most) {}
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  /// \returns where the bytes lie. \throws kData past `most`, kIo when the disk is full.
  uint64_t put(std::string_view bytes);
  /// \throws kIo
  std::string get(uint64_t at, size_t length) const;
  uint64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path folder_;
  uint64_t most_, bytes_ = 0;
  int file_ = -1;
};

}  // namespace evenkeel::wire
