/// \file  Reads and writes the head of a NumPy file: magic, version, length, and `{'descr': '<f4', 'fortran_order':
/// False, 'shape': (2, 3), }` padded to a multiple of 64 bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::flower {

/// Returns the bytes of an element of a NumPy type by name ("float32"); nothing if the type is unknown.
std::optional<uint64_t> bytes_of_dtype(std::string_view dtype);

/// The only accepted serialisation of arrays: a NumPy file.
inline constexpr std::string_view kNumpy = "numpy.ndarray";

/// Describes an array: everything but its data.
struct ArrayHead {
  std::string name;
  std::string dtype;           ///< NumPy's name: float32, uint16 (which carries bf16), int64, bool, ...
  std::vector<int64_t> shape;  ///< empty for a scalar
  std::string stype{kNumpy};

  /// Returns the bytes of the data. \throws kData for an unknown dtype, a negative axis, or more than 2^62 bytes
  uint64_t bytes() const;
  bool operator==(const ArrayHead&) const = default;
};

/// Returns the head that numpy.save writes before the data: version 1.0, C order.
std::string npy_head(const ArrayHead& head);

struct NpyHead {
  size_t bytes = 0;  ///< length of the head; the data begins there
  bool fortran_order = false;
};
/// The number of bytes from which npy_head_bytes() can read a head's length.
inline constexpr size_t kNpyPreamble = 12;
/// Returns the length of a file's head.
/// \param image  the first kNpyPreamble bytes or more
/// \throws kData unless it begins as a NumPy file
size_t npy_head_bytes(std::string_view image);
/// Reads a head of version 1 to 3. \throws kData when it is invalid, or differs from `expected` in dtype, shape or byte
/// order
NpyHead parse_npy_head(std::string_view image, const ArrayHead& expected);

/// Converts data from Fortran order to C order. The data arrives in pieces from its beginning; the result is stored in
/// the buffer `place`.
class FortranOrder {
 public:
  FortranOrder(const ArrayHead& head, std::span<std::byte> place);
  /// Stores the next bytes. REQUIRES no more bytes in total than the buffer has.
  void put(std::span<const std::byte> data);

 private:
  void put_element(const std::byte* element);

  std::span<std::byte> place_;
  size_t element_;
  std::vector<size_t> shape_, strides_, index_;  // strides in bytes
  std::vector<std::byte> part_;                  // the beginning of an element that was split between two pieces
};

}  // namespace evenkeel::flower
