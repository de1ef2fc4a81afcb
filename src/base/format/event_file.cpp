#include "base/format/event_file.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel {
namespace {

// Tags (field number and wire type) of tensorflow.Event and tensorflow.Summary.Value.
constexpr uint8_t kWallTime = 1 << 3 | 1, kStep = 2 << 3 | 0, kFileVersion = 3 << 3 | 2, kSummary = 5 << 3 | 2;
constexpr uint8_t kValue = 1 << 3 | 2, kTag = 1 << 3 | 2, kSimpleValue = 2 << 3 | 5;
constexpr size_t kHead = 12, kFoot = 4, kLongestRecord = size_t{1} << 24;

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    table[i] = crc;
  }
  return table;
}

/// Returns the masked checksum that TFRecord files store.
uint32_t masked(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U; }

template <typename T>
void append_fixed(std::string& out, T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  out.append(bytes.data(), bytes.size());
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_text(std::string& out, uint8_t field, std::string_view text) {
  out += static_cast<char>(field);
  append_varint(out, text.size());
  out += text;
}

std::string record_of(std::string_view message) {
  std::string record;
  append_fixed<uint64_t>(record, message.size());
  append_fixed<uint32_t>(record, masked(record));
  record += message;
  append_fixed<uint32_t>(record, masked(message));
  return record;
}

std::string begin_event(double wall_time) {
  std::string message(1, static_cast<char>(kWallTime));
  append_fixed(message, wall_time);
  return message;
}

/// Reads the fields of a message in order.
class FieldReader {
 public:
  FieldReader(std::string_view bytes, const fs::path& file) : rest_(bytes), file_(file) {}
  bool at_end() const { return rest_.empty(); }
  uint8_t field() { return fixed<uint8_t>(); }
  template <typename T>
  T fixed() {
    std::array<char, sizeof(T)> bytes{};
    std::memcpy(bytes.data(), take(sizeof(T)).data(), sizeof(T));
    return std::bit_cast<T>(bytes);
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }
  std::string_view text() { return take(varint()); }
  [[noreturn]] void refuse() const { fail(kCheckpoint, file_.string(), ": is no event file of this program"); }

 private:
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) refuse();
    const auto taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  const fs::path& file_;
};

Scalar scalar_of(std::string_view bytes, const fs::path& file) {
  FieldReader reader(bytes, file);
  Scalar scalar;
  while (!reader.at_end()) switch (reader.field()) {
      case kTag:
        scalar.tag = std::string(reader.text());
        break;
      case kSimpleValue:
        scalar.value = reader.fixed<float>();
        break;
      default:
        reader.refuse();
    }
  return scalar;
}

std::vector<Scalar> summary_of(std::string_view bytes, const fs::path& file) {
  FieldReader reader(bytes, file);
  std::vector<Scalar> scalars;
  while (!reader.at_end()) {
    if (reader.field() != kValue) reader.refuse();
    scalars.push_back(scalar_of(reader.text(), file));
  }
  return scalars;
}

/// Returns nothing for the first record, which has a version and no scalars.
std::optional<ScalarEvent> event_of(std::string_view bytes, const fs::path& file) {
  FieldReader reader(bytes, file);
  ScalarEvent event;
  bool is_head = false;
  while (!reader.at_end()) switch (reader.field()) {
      case kWallTime:
        event.wall_time = reader.fixed<double>();
        break;
      case kStep:
        event.step = static_cast<int64_t>(reader.varint());
        break;
      case kFileVersion:
        is_head = !reader.text().empty();
        break;
      case kSummary:
        event.scalars = summary_of(reader.text(), file);
        break;
      default:
        reader.refuse();
    }
  return is_head ? std::nullopt : std::optional(event);
}

template <typename T>
T number_at(std::string_view bytes, size_t at) {
  std::array<char, sizeof(T)> number{};
  std::memcpy(number.data(), bytes.data() + at, sizeof(T));
  return std::bit_cast<T>(number);
}

/// Removes the message of the next record from `rest`. Returns nothing if the record is incomplete.
std::optional<std::string_view> take_message(std::string_view& rest, const fs::path& file) {
  if (rest.size() < kHead) return std::nullopt;
  const auto length = number_at<uint64_t>(rest, 0);
  const auto check = [&](bool good) { EK_CHECK(good, kCheckpoint, file.string(), ": a record's checksum is wrong"); };
  check(number_at<uint32_t>(rest, 8) == masked(rest.substr(0, 8)) && length <= kLongestRecord);
  if (rest.size() < kHead + length + kFoot) return std::nullopt;
  const auto message = rest.substr(kHead, length);
  check(number_at<uint32_t>(rest, kHead + length) == masked(message));
  rest.remove_prefix(kHead + length + kFoot);
  return message;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  uint32_t crc = ~0U;
  for (const unsigned char byte : bytes) crc = kTable[(crc ^ byte) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::string event_file_head(double wall_time) {
  auto message = begin_event(wall_time);
  append_text(message, kFileVersion, "brain.Event:2");
  return record_of(message);
}

std::string event_record(const ScalarEvent& event) {
  std::string summary;
  for (const auto& scalar : event.scalars) {
    std::string value;
    append_text(value, kTag, scalar.tag);
    value += static_cast<char>(kSimpleValue);
    append_fixed(value, static_cast<float>(scalar.value));
    append_text(summary, kValue, value);
  }
  auto message = begin_event(event.wall_time);
  message += static_cast<char>(kStep);
  append_varint(message, static_cast<uint64_t>(event.step));
  append_text(message, kSummary, summary);
  return record_of(message);
}

std::vector<ScalarEvent> read_event_file(const fs::path& file, uint64_t* whole_bytes) {
  const auto bytes = read_file(file);
  std::string_view rest = bytes;
  std::vector<ScalarEvent> events;
  while (const auto message = take_message(rest, file))
    if (auto event = event_of(*message, file)) events.push_back(std::move(*event));
  if (whole_bytes != nullptr) *whole_bytes = bytes.size() - rest.size();
  return events;
}

}  // namespace evenkeel
