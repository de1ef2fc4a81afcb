/// \file  The text that a template gives.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace evenkeel::jinja {

/// Bytes [begin, end) of a text.
struct ByteSpan {
  size_t begin = 0, end = 0;
  bool operator==(const ByteSpan&) const = default;
};

struct Rendered {
  std::string text;
  std::vector<ByteSpan> generated{};  ///< what {% generation %} blocks wrote, in order
};

}  // namespace evenkeel::jinja
