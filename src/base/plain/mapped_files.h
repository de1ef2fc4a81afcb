/// \file  Maps whole files into memory, read-only. A registry of all mappings of the process lets the handler of
/// SIGBUS name the file whose page could not be read.
#pragma once

#include <cstddef>
#include <span>

#include "base/plain/files.h"

namespace evenkeel {

/// A read-only memory mapping of a whole file; the destructor unmaps it. Its pages belong to the system's cache: they
/// count in RSS once they are touched and can be dropped under memory pressure. When a page cannot be read because the
/// file became shorter, the process prints one line that names the file and exits with code 1.
class MappedFile {
 public:
  /// Maps the file. \throws kIo when it is missing, cannot be opened or is not a regular file.
  explicit MappedFile(const fs::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  /// Returns the mapped bytes. They are valid until the destructor runs; the span is empty for an empty file.
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Checks that no mapped file was changed in place since it was mapped. A file that was removed, or replaced by
/// renaming, counts as unchanged, because the mapping keeps its bytes. Call it before a result that was computed from
/// mapped files is stored, because such a result may mix old and new bytes. Threads: any.
/// \throws kIo naming the first mapped file whose length or modification time differs.
void check_mapped_files();

/// Removes the pages of all mapped files from this process' memory (MADV_DONTNEED). The next read loads them from the
/// system's cache. Call it when large files are not needed for a while and the memory is needed for something else.
/// Threads: any.
void release_mapped_pages();

/// Counts `bytes` of mapped files that were read and are not needed again. When the counts of all calls reach 64 MiB,
/// the pages are removed as release_mapped_pages() does. Threads: any.
void advise_dontneed(size_t bytes);

}  // namespace evenkeel
