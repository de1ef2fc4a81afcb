#include "base/plain/read_line.h"

#include "base/plain/error.h"

namespace evenkeel {

bool read_line(std::istream& input, std::string& line, size_t most) {
  using Traits = std::istream::traits_type;
  line.clear();
  const std::istream::sentry ready(input, /*noskipws=*/true);  // flushes the tied stream
  if (!ready) return false;
  auto& buffer = *input.rdbuf();
  for (auto next = buffer.sbumpc(); next != Traits::eof(); next = buffer.sbumpc()) {
    const char byte = Traits::to_char_type(next);
    if (byte == '\n') return true;
    EK_CHECK(line.size() < most, kData, "the line is longer than ", most, " bytes, the most that is read of one");
    line += byte;
  }
  input.setstate(std::ios::eofbit);
  return !line.empty();
}

}  // namespace evenkeel
