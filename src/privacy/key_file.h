/// \file  Keeps a secret of 32 bytes in a file that its owner alone can read.
#pragma once

#include <filesystem>

#include "crypto/secret.h"

namespace evenkeel::privacy {

/// Reads the secret of a file; makes file and secret if there is none. The file appears whole, with mode 0600, and is
/// on disk when this returns.
/// \throws kConfig when others may read the file; kData when it holds fewer than 32 bytes; kIo, also when it holds more
crypto::Secret key_in(const std::filesystem::path& file);

}  // namespace evenkeel::privacy
