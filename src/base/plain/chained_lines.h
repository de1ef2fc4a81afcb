/// \file  Appends sealed JSON lines (base/plain/sealed.h) in which each line holds the SHA-256 of the line before, and
/// checks such files. A line that was changed, removed, added or moved breaks the chain behind it.
///
///   {"n":8,"kind":"reply",...,"before":"<SHA-256 of line 7, 64 hex digits>","checksum":"<16 hex digits>"}
///
/// `n` counts the whole lines from 1. `before` is the SHA-256 of all bytes of the whole line before, without its line
/// break; 64 zeros in the first line. The SHA-256 of the last whole line is the *head* of the chain.
///
/// A killed process or a full disk may leave the beginning of a line. These bytes are never removed. The next append
/// ends them with a line break and writes a marker, {"n":8,"kind":"torn","time":...,"bytes":31,"digest":...,
/// "before":...}, with the number and the SHA-256 of the torn bytes. The chain goes on from the last whole line: the
/// marker's `before` is the digest of that line.
///
/// The chain proves nothing against somebody who may write the file: all lines can be made anew, and lines at the end
/// can be cut off. A head that was written down elsewhere shows both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/plain/error.h"
#include "base/plain/json.h"

namespace evenkeel {

/// Says whether an append waits for the disk.
enum class Flush {
  kNow,    ///< the line is on disk when the call returns
  kLater,  ///< the line survives a kill of the process; after a power failure it may be missing, with all later ones
};

/// Appends `object` with its number, the digest of the line before and a checksum, and marks torn bytes before it. Only
/// the end of the file is read. Several processes may append: the file is locked by flock(2) during the call, where the
/// file system has that. Creates the file when it is missing.
/// \return the digest of the line: the head of the chain. REQUIRES that `object` has no key "n", "before" or
/// "checksum".
/// \throws kIo naming the file
std::string append_chained(const std::filesystem::path& file, const OrderedJson& object, Flush flush = Flush::kNow);

/// A line of a chain, during check_chain().
struct ChainedLine {
  JsonView view;       ///< the object; its place names file and line. Valid during the call only
  std::string digest;  ///< SHA-256 of the line
};

/// What check_chain() found.
struct ChainCheck {
  int64_t lines = 0;             ///< whole lines up to the fault, markers included
  int64_t torn = 0;              ///< torn lines that a marker describes
  int64_t torn_end = 0;          ///< bytes after the last line break: a line that is being written, or was torn
  std::string head{};            ///< digest of the last whole line before the fault; 64 zeros: there is none
  std::optional<Error> fault{};  ///< names the first bad line and what is wrong with it; nothing: the chain holds
};

/// Reads a chain from its beginning to its end or to the first fault.
/// \param on_line  receives each whole line that holds, in order; may be empty
/// \throws kIo when the file cannot be read; anything that `on_line` throws
ChainCheck check_chain(const std::filesystem::path& file, const std::function<void(const ChainedLine&)>& on_line = {});

}  // namespace evenkeel
