/// \file  The head of a NumPy file: magic, version, length, and
/// `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }` padded to a multiple of 64 bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::wire {

/// Bytes of one element of a NumPy type, by name ("float32"); nothing when it is not known.
std::optional<uint64_t> bytes_of_dtype(std::string_view dtype);

/// What arrays travel as: a NumPy file image. Another serialisation is refused.
inline constexpr std::string_view kNumpy = "numpy.ndarray";

/// All of an array but its data.
struct ArrayHead {
  std::string name;
  std::string dtype;           ///< NumPy's name: float32, uint16 (which carries bf16), int64, bool, ...
  std::vector<int64_t> shape;  ///< empty for a scalar
  std::string stype{kNumpy};

  /// Bytes of the data. \throws kData for a dtype that is not known, a negative axis, or more than 2^62 bytes.
  uint64_t bytes() const;
  bool operator==(const ArrayHead&) const = default;
};

/// What numpy.save writes before the data, version 1.0, C order.
std::string npy_head(const ArrayHead& head);

struct NpyHead {
  size_t bytes = 0;  ///< of the head: data begins there
  bool fortran_order = false;
};
/// How many bytes of an image have to be there to know its head's length.
inline constexpr size_t kNpyPreamble = 12;
/// The length of an image's head. \throws kData when `image`, of kNpyPreamble bytes or more, does not begin as a NumPy
/// file.
size_t npy_head_bytes(std::string_view image);
/// Reads a head of any version. \throws kData when it is none, or says another dtype or shape than `expected`, or an
/// order of bytes that is not ours.
NpyHead parse_npy_head(std::string_view image, const ArrayHead& expected);

/// Puts data that comes in Fortran order, in pieces and from its beginning, into C order.
class FortranOrder {
 public:
  FortranOrder(const ArrayHead& head, std::span<std::byte> place);
  /// REQUIRES no more bytes in all than the place has.
  void put(std::span<const std::byte> data);

 private:
  void put_element(const std::byte* element);

  std::span<std::byte> place_;
  size_t element_;
  std::vector<size_t> shape_, strides_, index_;  // strides in bytes
  std::vector<std::byte> part_;                  // of an element that was cut
};

}  // namespace evenkeel::wire
