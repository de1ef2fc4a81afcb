/// \file  Owns file descriptors, opens files, and writes and reads whole pieces of them. Calls that a signal interrupts
/// or that do only a part are continued. Does not depend on LibTorch.
/// Example:
///   const auto opened = open_file(file, O_WRONLY | O_CREAT);
///   EK_CHECK(write_all(opened.get(), text), kIo, file.string(), ": cannot be written: ", os_error_text(errno));
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

namespace evenkeel {

/// Owns a file descriptor, which the destructor closes; -1: none. Threads: one at a time changes the object, several
/// may use the descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool is_open() const { return number_ >= 0; }
  /// Returns the descriptor, which stays with this object; -1: none.
  int get() const { return number_; }
  /// Closes the descriptor. Does nothing when there is none. Errors of close(2) are ignored: where they matter, call
  /// fsync(2) first.
  void close() noexcept;

 private:
  int number_;
};

/// Opens a file by open(2); programs that this process starts do not get the descriptor (O_CLOEXEC).
/// \param flags  as O_RDONLY | O_NONBLOCK
/// \param mode   permissions of a file that is created, before the umask
/// \return an object without a descriptor when the file cannot be opened; errno says why
Descriptor try_open(const std::filesystem::path& file, int flags, mode_t mode = 0666);

/// Opens a file as try_open() does. \throws kIo naming the file and the system's error
Descriptor open_file(const std::filesystem::path& file, int flags);

/// Writes all bytes at the descriptor's position. \return false when the system refused some of them; errno says why. A
/// write of 0 bytes, which names no error, counts as EIO.
[[nodiscard]] bool write_all(int descriptor, std::string_view bytes);

/// Writes all bytes from `offset` on. The descriptor's position stays. \return as write_all()
[[nodiscard]] bool write_all_at(int descriptor, int64_t offset, std::string_view bytes);

/// Fills `into` with the bytes from `offset` on, or with fewer where the file ends. The descriptor's position stays.
/// \return the number of bytes read; -1: the file cannot be read, errno says why
int64_t read_at(int descriptor, int64_t offset, std::span<char> into);

}  // namespace evenkeel
