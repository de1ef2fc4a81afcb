/// \file  Writes and reads event files of TensorBoard: records with checksums (CRC-32C), each an Event message of
/// protobuf with scalars.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

/// A named value. The ScalarEvent has its step.
struct Scalar {
  std::string tag;
  double value = 0;  ///< stored in single precision
};

/// The scalars of one step.
struct ScalarEvent {
  double wall_time = 0;  ///< seconds since 1970
  int64_t step = 0;
  std::vector<Scalar> scalars;
};

/// Returns the CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(std::string_view bytes);

/// Returns the first record of an event file, which states the version of the format.
std::string event_file_head(double wall_time);
/// Returns an event as a record.
std::string event_record(const ScalarEvent& event);

/// Reads an event file that this program wrote. An incomplete last record is ignored.
/// \param whole_bytes  receives the length of the complete records; may be null
/// \throws kCheckpoint when a checksum is wrong or a record is not an event of this program; kIo when the file cannot
/// be read
std::vector<ScalarEvent> read_event_file(const std::filesystem::path& file, uint64_t* whole_bytes = nullptr);

}  // namespace evenkeel
