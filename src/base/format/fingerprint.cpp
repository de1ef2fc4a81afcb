#include "base/format/fingerprint.h"

#include <ATen/Parallel.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/format/record.h"
#include "base/format/sha256_streams.h"
#include "base/plain/cache_folder.h"
#include "base/plain/dead_parts.h"
#include "base/plain/descriptor.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/os_error.h"

namespace evenkeel {
namespace {

constexpr int64_t kReadBytes = int64_t{1} << 20;  // the size of a second-level cache
// Younger files may still change within the resolution of time stamps.
constexpr int64_t kSettleNanoseconds = 2'000'000'000;
constexpr size_t kDigestBytes = 32 * Sha256Streams::kStreams;

/// The results that are cached for a file, in a small file in the cache folder.
struct FileFacts {
  std::string path;
  int64_t device = 0, inode = 0, bytes = 0, modified_ns = 0, changed_ns = 0;
  std::optional<std::string> tree{};
  bool finite = false;

  static FileFacts nothing_of(const fs::path& file, const FileIdentity& now) {
    const auto number = [](uint64_t id) { return static_cast<int64_t>(id & ~(uint64_t{1} << 63)); };
    return {.path = fs::absolute(file).lexically_normal().string(),
            .device = number(now.device),
            .inode = number(now.inode),
            .bytes = now.bytes,
            .modified_ns = now.modified_ns,
            .changed_ns = now.changed_ns};
  }
  bool same_file(const FileFacts& other) const {
    const auto identity = [](const FileFacts& x) {
      return std::tie(x.path, x.device, x.inode, x.bytes, x.modified_ns, x.changed_ns);
    };
    return identity(*this) == identity(other);
  }
  void visit(auto& field) {  // base/format/record.h
    field("path", path);
    field("device", device);
    field("inode", inode);
    field("bytes", bytes);
    field("modified_ns", modified_ns);
    field("changed_ns", changed_ns);
    field("sha256_tree", tree);
    field("finite", finite);
  }
};

/// A cache that several threads and processes read and write. A file of facts is replaced as a whole. A lost update
/// costs one more pass over the model file.
class FactsCache {
 public:
  /// Returns the facts about the file in its present state. Without an entry they contain its identity only.
  FileFacts of(const fs::path& file, const FileIdentity& now) {
    const std::scoped_lock lock(mutex_);
    auto nothing = FileFacts::nothing_of(file, now);
    if (const auto found = known_.find(nothing.path); found != known_.end() && found->second.same_file(nothing))
      return found->second;
    if (auto stored = read(nothing.path); stored && stored->same_file(nothing)) return known_[nothing.path] = *stored;
    return nothing;
  }

  void keep(const FileFacts& facts, const FileIdentity& file) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    if (!is_settled(file, std::chrono::nanoseconds(now).count())) return;
    const std::scoped_lock lock(mutex_);
    known_[facts.path] = facts;
    write(facts);
  }

 private:
  static fs::path path_of(const std::string& name) {
    const auto folder = cache_folder();
    return folder.empty() ? folder : folder / concat(sha256(name).substr(0, 32), ".json");
  }

  static std::optional<FileFacts> read(const std::string& name) {
    const auto path = path_of(name);
    try {
      if (path.empty() || !path_exists(path)) return std::nullopt;
      const Json json = read_sealed(path);
      return record::read<FileFacts>({json, path.string(), kCheckpoint});
    } catch (const Error& error) {
      log::warning("[cache] what was remembered of ", name, " is of no use: ", error.what());
      return std::nullopt;
    }
  }

  void write(const FileFacts& facts) {
    const auto path = path_of(facts.path);
    if (path.empty() || warned_) return;
    try {
      make_folders(path.parent_path());
      if (!std::exchange(cleared_, true))
        remove_dead_parts(
            path.parent_path(), [](std::string_view name) { return name.ends_with(".json"); }, std::chrono::hours(1));
      write_sealed(path, record::write(facts));
    } catch (const Error& error) {
      log::warning("[cache] nothing is remembered of model files: ", error.what());
      warned_ = true;
    }
  }

  std::mutex mutex_;
  std::map<std::string, FileFacts> known_;
  bool warned_ = false, cleared_ = false;
};

FactsCache& facts_cache() {
  static FactsCache all;
  return all;
}

class OpenFile {
 public:
  /// O_NONBLOCK has no effect on a regular file. Without it, opening a pipe would wait for a writer.
  explicit OpenFile(const fs::path& file) : file_(file), descriptor_(open_file(file, O_RDONLY | O_NONBLOCK)) {
    ::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }

  /// Reads `bytes` bytes from `begin` on. It is an error if the file has become shorter.
  void read(int64_t begin, char* into, int64_t bytes) const {
    const int64_t done = read_at(descriptor_.get(), begin, {into, static_cast<size_t>(bytes)});
    EK_CHECK(done == bytes, kIo, file_.string(),
             ": cannot be read: ", done < 0 ? os_error_text(errno) : "it became shorter");
  }

 private:
  const fs::path& file_;
  Descriptor descriptor_;
};

/// Computes the sixteen digests of one piece.
void hash_piece(const OpenFile& file, int64_t begin, int64_t end, std::string& buffer, char* digests) {
  Sha256Streams streams;
  for (; begin < end; begin += kReadBytes) {
    const int64_t bytes = std::min(kReadBytes, end - begin), block = Sha256Streams::kBlock;
    const int64_t whole = (bytes + block - 1) / block * block;
    file.read(begin, buffer.data(), bytes);
    std::memset(buffer.data() + bytes, 0, static_cast<size_t>(whole - bytes));
    streams.update(std::string_view(buffer).substr(0, static_cast<size_t>(whole)));
  }
  const auto all = streams.finish();
  std::memcpy(digests, all.data(), kDigestBytes);
}

}  // namespace

std::string tree_digest(const fs::path& path) {
  const OpenFile file(path);
  const auto bytes = static_cast<int64_t>(evenkeel::file_size(path));
  const int64_t pieces = (bytes + kTreePiece - 1) / kTreePiece;
  std::string digests(static_cast<size_t>(pieces) * kDigestBytes, '\0');
  at::parallel_for(0, pieces, 1, [&](int64_t first, int64_t last) {
    std::string buffer(kReadBytes, '\0');
    for (int64_t piece = first; piece < last; ++piece)
      hash_piece(file, piece * kTreePiece, std::min(bytes, (piece + 1) * kTreePiece), buffer,
                 digests.data() + static_cast<size_t>(piece) * kDigestBytes);
  });
  return tree_of(std::move(digests), bytes);
}

PieceDigests piece_digests(std::string_view piece) {
  Sha256Streams streams;
  const size_t whole = piece.size() / Sha256Streams::kBlock * Sha256Streams::kBlock;
  if (whole > 0) streams.update(piece.substr(0, whole));
  if (whole < piece.size()) {
    std::string rest(piece.substr(whole));
    rest.resize(Sha256Streams::kBlock, '\0');
    streams.update(rest);
  }
  return streams.finish();
}

std::string tree_of(std::string digests, int64_t bytes) {
  for (int byte = 0; byte < 8; ++byte) digests += static_cast<char>(bytes >> (8 * byte));
  return sha256(digests);
}

Fingerprint read_fingerprint(const fs::path& file) {
  if (static_cast<int64_t>(evenkeel::file_size(file)) <= kTreePiece) return {kWholeDigest, sha256_file(file)};
  return {kTreeDigest, tree_digest(file)};
}

Fingerprint fingerprint_of_bytes(std::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) <= kTreePiece) return {kWholeDigest, sha256(bytes)};
  const auto pieces = (static_cast<int64_t>(bytes.size()) + kTreePiece - 1) / kTreePiece;
  std::string digests(static_cast<size_t>(pieces) * kDigestBytes, '\0');
  at::parallel_for(0, pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto piece = piece_digests(bytes.substr(static_cast<size_t>(i * kTreePiece), kTreePiece));
      std::memcpy(digests.data() + static_cast<size_t>(i) * kDigestBytes, piece.data(), kDigestBytes);
    }
  });
  return {kTreeDigest, tree_of(std::move(digests), static_cast<int64_t>(bytes.size()))};
}

Fingerprint fingerprint_of(const fs::path& file) {
  const auto before = FileIdentity::of(file);
  const auto check_unchanged = [&] {
    EK_CHECK(FileIdentity::of(file) == before, kIo, file.string(), ": was changed while it was read");
  };
  if (before.bytes <= kTreePiece) {
    Fingerprint whole{kWholeDigest, sha256_file(file)};
    check_unchanged();
    return whole;
  }
  auto facts = facts_cache().of(file, before);
  if (!facts.tree) {
    facts.tree = tree_digest(file);
    check_unchanged();
    facts_cache().keep(facts, before);
  }
  return {kTreeDigest, *facts.tree};
}

bool is_settled(const FileIdentity& file, int64_t now) {
  return now - std::max(file.modified_ns, file.changed_ns) >= kSettleNanoseconds;
}

FiniteScan::FiniteScan(std::span<const fs::path> files) : files_(files.begin(), files.end()), known_(!files.empty()) {
  for (const auto& file : files_) {
    identities_.push_back(FileIdentity::of(file));
    known_ = known_ && identities_.back().bytes > kTreePiece && facts_cache().of(file, identities_.back()).finite;
  }
}

void FiniteScan::remember_finite() const {
  for (size_t i = 0; i < files_.size(); ++i) {
    if (identities_[i].bytes <= kTreePiece || !(FileIdentity::of(files_[i]) == identities_[i])) continue;
    auto facts = facts_cache().of(files_[i], identities_[i]);
    if (std::exchange(facts.finite, true)) continue;
    facts_cache().keep(facts, identities_[i]);
  }
}

}  // namespace evenkeel
