/// \file  Writes and erases files of secrets, which their owner alone can read. Does not depend on LibTorch.
#pragma once

#include <filesystem>
#include <string_view>

namespace evenkeel {

/// Writes a new file with mode 0600 and flushes it to disk. A file that cannot be written whole is removed.
/// \return false if the file exists already; it is then as before
/// \throws kIo
[[nodiscard]] bool write_new_private_file(const std::filesystem::path& file, std::string_view bytes);

/// Overwrites the bytes of a file with zeros and flushes it to disk. Nothing happens when there is no such file.
/// \throws kIo
void overwrite_private_file(const std::filesystem::path& file);

/// Checks that only the owner of the file and the user of this process can read it. The latter may have the right by an
/// access control list, as systemd's credentials have. \throws kConfig with the command that mends it
void require_private_file(const std::filesystem::path& file);

}  // namespace evenkeel
