/// \file  Defines the result of rendering a template.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace evenkeel::jinja {

/// The bytes [begin, end) of a text.
struct ByteSpan {
  size_t begin = 0, end = 0;
  bool operator==(const ByteSpan&) const = default;
};

/// The rendered text.
struct Rendered {
  std::string text;
  std::vector<ByteSpan> generated{};  ///< output of the {% generation %} blocks, in order
};

}  // namespace evenkeel::jinja
