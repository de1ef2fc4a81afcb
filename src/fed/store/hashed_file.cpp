#include "fed/store/hashed_file.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/system/parallel.h"

namespace evenkeel::fed {
namespace {

int64_t pieces_in(int64_t bytes) { return (bytes + kTreePiece - 1) / kTreePiece; }

/// Copies bytes, large ones on all threads, because one does not use the memory's whole bandwidth.
void copy(std::string_view from, char* to) {
  constexpr int64_t kBlock = int64_t{1} << 22;
  for_each_range(static_cast<int64_t>(from.size()), kBlock,
                 [&](int64_t begin, int64_t end) { std::memcpy(to + begin, from.data() + begin, end - begin); });
}

}  // namespace

HashedFile::HashedFile(fs::path path, int64_t expected)
    : path_(std::move(path)),
      out_(path_),
      room_(kTreePiece *
            std::clamp<int64_t>(pieces_in(expected), 1, std::clamp<int64_t>(at::get_num_threads(), 1, kMostPieces))),
      gathered_(std::make_unique_for_overwrite<char[]>(static_cast<size_t>(room_))) {}

void HashedFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (filled_ == room_) write_gathered();
    const auto part = bytes.substr(0, static_cast<size_t>(room_ - filled_));
    copy(part, gathered_.get() + filled_);
    filled_ += static_cast<int64_t>(part.size());
    bytes.remove_prefix(part.size());
  }
}

void HashedFile::write_gathered() {
  std::vector<PieceDigests> digests(static_cast<size_t>(pieces_in(filled_)));
  for_each_range(filled_, kTreePiece, [&](int64_t begin, int64_t end) {
    const std::string_view piece(gathered_.get() + begin, static_cast<size_t>(end - begin));
    digests[static_cast<size_t>(begin / kTreePiece)] = piece_digests(piece);
    out_.write_at(written_ + begin, piece);
  });
  for (const auto& digest : digests) digests_.append(digest.data(), digest.size());
  written_ += std::exchange(filled_, 0);
}

FileSeal HashedFile::place() {
  Fingerprint fingerprint;
  if (written_ == 0 && filled_ <= kTreePiece) {
    const std::string_view all(gathered_.get(), static_cast<size_t>(filled_));
    fingerprint = fingerprint_of_bytes(all);
    out_.write_at(0, all);
    written_ = filled_;
  } else {
    write_gathered();
    fingerprint = {kTreeDigest, tree_of(digests_, written_)};
  }
  out_.place();
  return {path_.filename().string(), written_, std::move(fingerprint), FileIdentity::of(path_)};
}

}  // namespace evenkeel::fed
