#include "base/plain/sealed.h"

#include <sys/stat.h>

#include <cerrno>
#include <cmath>

#include "base/plain/files.h"
#include "base/plain/hex.h"
#include "base/plain/os_error.h"

namespace evenkeel {
namespace {

constexpr std::string_view kKey = R"("checksum":")", kClosing = R"("})";
constexpr size_t kDigits = 16;
constexpr size_t kTail = kKey.size() + kDigits + kClosing.size();

std::string tail_of(std::string_view body) { return concat(kKey, sha256(body).substr(0, kDigits), kClosing); }

/// Checks that all numbers of a record are finite. For others dump() would write null, which no reader takes for a
/// number. \param key  the path of the value, for the message
void check_finite(const OrderedJson& value, const std::string& key) {
  if (value.is_number_float())
    EK_CHECK(std::isfinite(value.get<double>()), kNumeric, "a record cannot hold ", key, ": it is ",
             value.get<double>());
  else if (value.is_object())
    for (const auto& [name, member] : value.items()) check_finite(member, key.empty() ? name : concat(key, '.', name));
  else if (value.is_array())
    for (size_t i = 0; i < value.size(); ++i)
      if (value[i].is_structured() || value[i].is_number_float()) check_finite(value[i], concat(key, '[', i, ']'));
}

/// Returns whether `text`, which follows the last line break of a file, is a line that a process left incomplete when
/// it died: a prefix of the line, or the line without its line break. A whole line with something else after it is
/// damaged.
bool is_incomplete_line(std::string_view text) {
  size_t key = text.find(kKey);
  // A member of the object may have the same key, but does not match the bytes before it.
  for (; key != std::string_view::npos && text.size() > key + kTail; key = text.find(kKey, key + 1))
    if (text.substr(key, kTail) == tail_of(text.substr(0, key))) return false;
  return true;
}

}  // namespace

std::string sealed(const OrderedJson& object, int indent) {
  EK_CHECK(object.is_object() && !object.empty(), kInternal, "sealed: not an object with members");
  check_finite(object, {});
  std::string text = object.dump(indent);
  text.resize(text.size() - (indent < 0 ? 1 : 2));  // removes the closing brace and the line break before it
  text += indent < 0 ? "," : concat(",\n", std::string(static_cast<size_t>(indent), ' '));
  return text + tail_of(text);
}

bool ends_as_sealed(std::string_view text) {
  if (text.size() < kTail) return false;
  const auto tail = text.substr(text.size() - kTail);
  return tail.starts_with(kKey) && tail.ends_with(kClosing) && is_hex(tail.substr(kKey.size(), kDigits), kDigits);
}

Json unsealed(std::string_view text, const std::string& place) {
  const size_t key = text.rfind(kKey);
  EK_CHECK(key != std::string_view::npos, kCheckpoint, place, ": damaged: it does not end in a checksum");
  const auto body = text.substr(0, key);
  EK_CHECK(text.substr(key) == tail_of(body), kCheckpoint, place, ": damaged: its bytes do not fit its checksum");
  Json json = parse_json(text, place, kCheckpoint);
  json.erase("checksum");
  return json;
}

void write_sealed(const fs::path& file, const OrderedJson& object, int indent) {
  write_file_atomic(file, sealed(object, indent) + "\n");
}

Json read_sealed(const fs::path& file) {
  const std::string text = read_file(file);
  EK_CHECK(text.ends_with('\n'), kCheckpoint, file.string(), ": damaged: it does not end in a line break");
  return unsealed(std::string_view(text).substr(0, text.size() - 1), file.string());
}

const SealedLines& SealedLines::whole() const {
  if (damage) throw *damage;
  return *this;
}

SealedLines read_sealed_lines(const fs::path& file) {
  SealedLines result;
  if (!path_exists(file)) return result;
  const std::string text = read_file(file);
  const std::string_view view = text;
  try {
    size_t start = 0;
    for (size_t end; (end = view.find('\n', start)) != std::string_view::npos; start = end + 1) {
      const auto place = concat(file.string(), ", line ", result.lines.size() + 1);
      result.lines.push_back({unsealed(view.substr(start, end - start), place), place, static_cast<int64_t>(end) + 1});
    }
    EK_CHECK(is_incomplete_line(view.substr(start)), kCheckpoint, file.string(), ", line ", result.lines.size() + 1,
             ": damaged: its bytes do not fit its checksum");
  } catch (const Error& damage) {
    result.damage = damage;
  }
  return result;
}

void append_sealed(const fs::path& file, const OrderedJson& object) { append_line(file, sealed(object)); }

FileIdentity FileIdentity::of(const fs::path& file) {
  struct stat status = {};
  EK_CHECK(::stat(file.c_str(), &status) == 0, kIo, file.string(), ": ", os_error_text(errno));
  const auto nanoseconds = [](const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
  return {status.st_dev, status.st_ino, status.st_size, nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

}  // namespace evenkeel
