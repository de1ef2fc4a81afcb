/// \file  Reads lines of bounded length from a stream. Does not depend on LibTorch.
#pragma once

#include <cstddef>
#include <istream>
#include <string>

namespace evenkeel {

/// Reads the next line into `line`, without its line break. The last line of a stream may lack a line break. The stream
/// that is tied to the input is flushed first, as by std::getline().
/// \param most  largest length of a line in bytes
/// \return false at the end of the stream
/// \throws kData when a line is longer than `most`. No more than `most` + 1 bytes of it are read.
bool read_line(std::istream& input, std::string& line, size_t most);

}  // namespace evenkeel
