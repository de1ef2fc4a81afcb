/// \file  A message that is arriving, object by object and in any order: what it says first, then its data to where it
/// belongs. Both ends use it: a node that pulls, a coordinator that is pushed to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "flower/format/flwr_message.h"
#include "flower/format/npy.h"
#include "flower/format/objects.h"
#include "flower/format/record_dict.h"
#include "flower/server/spool.h"

namespace evenkeel::wire {

/// The data of one array, chunk after chunk.
class ArrivingArray {
 public:
  /// \param children  ids of the chunks that `chunks` counts. \throws kData for what is no NumPy array, or too large.
  ArrivingArray(ArrayHead head, std::vector<std::string> chunks);

  const ArrayHead& head() const { return head_; }
  uint64_t bytes() const { return bytes_; }
  void place(std::span<std::byte> place);
  /// The chunk that comes next; null when all are there.
  const std::string* next() const { return done_ == chunks_.size() ? nullptr : &chunks_[done_]; }
  const std::vector<std::string>& chunks() const { return chunks_; }

  /// Where a chunk went: `skipped` bytes of it were the image's head. `data` is empty when it lies in no one piece.
  struct Put {
    std::span<const std::byte> data{};
    size_t skipped = 0;
    bool whole = false;  ///< data holds all of it that was not skipped
  };
  /// Puts the next chunk. \throws kData when its head or length is not what was announced.
  Put put(std::string_view chunk);

 private:
  void take_head(std::string_view& chunk);

  ArrayHead head_;
  uint64_t bytes_;
  std::vector<std::string> chunks_;
  size_t done_ = 0;
  std::span<std::byte> place_{};
  std::string image_head_{};  // until it is whole
  bool in_data_ = false;
  uint64_t filled_ = 0;
  std::optional<FortranOrder> fortran_{};
};

/// Any thread may call. After an error all that follows is refused with the same.
class Assembly {
 public:
  /// \param place  may be empty: arrays are then refused. \param folder, most_spooled  flower/server/spool.h
  /// \throws kData for a tree that is none (check_tree)
  Assembly(const Tree& tree, const Limits& limits, BufferAllocator place, std::filesystem::path folder,
           uint64_t most_spooled);

  /// Checks an object against its id and takes it; one that is there already counts as taken. \throws kData when it is
  /// not of this message, damaged, or says what does not fit; kShape and whatever else `place` throws.
  void take(std::string_view id, std::string_view content);
  bool announces(std::string_view id) const { return known_ids_.contains(id); }  ///< whether it is of this message
  bool has(std::string_view id) const;
  bool complete() const;
  bool failed() const;  ///< nothing more is taken: what it says does not fit

  /// Every id of the tree, each once.
  const std::vector<std::string>& ids() const { return ids_; }
  /// Objects that have to be there before it is known what the message is; empty once it is.
  std::vector<std::string> missing_structure() const;
  /// Arrays of the message, once its structure is known; and the chunk that an array waits for, if any.
  size_t arrays() const;
  std::optional<std::string> next_chunk(size_t array) const;

  /// Once it is complete.
  const Content& content() const { return content_; }
  const std::optional<Failure>& failure() const { return failure_; }
  const std::shared_ptr<void>& owner() const { return owner_; }
  uint64_t bytes() const;  ///< of objects taken so far

 private:
  /// An object other than a chunk.
  struct Node {
    std::string type;
    std::vector<std::string> children;
    std::string body;
  };
  /// A chunk that is there: in its place, or spooled, or both.
  struct Chunk {
    size_t length = 0;
    std::optional<ArrivingArray::Put> placed{};
    std::optional<uint64_t> spooled{};
  };

  void take_checked(std::string_view id, std::string_view content);
  void take_structure(std::string_view id, const ObjectView& view);
  void expand(const std::string& id, size_t depth);
  void build();
  Record build_record(const Node& node);
  Arrays build_arrays(const Node& node);
  const Node& node(const std::string& id, std::string_view type) const;
  void ask_for_places();
  void take_chunk(std::string_view id, std::string_view bytes);
  void advance(size_t array, std::string_view id, std::string_view bytes);
  std::optional<std::string> stored(const std::string& id) const;
  bool waited_for(std::string_view id) const;

  const Limits limits_;
  const BufferAllocator place_;
  std::vector<std::string> ids_;
  std::set<std::string_view> known_ids_;
  mutable std::mutex mutex_;
  std::optional<Error> error_{};
  uint64_t bytes_ = 0, structure_bytes_ = 0;
  std::map<std::string, Node, std::less<>> nodes_{};
  std::set<std::string, std::less<>> missing_{};  // structure that is referred to and not there
  std::set<std::string, std::less<>> expanded_{};
  bool built_ = false;
  std::map<std::string, Chunk, std::less<>> chunks_{};
  std::vector<ArrivingArray> arrays_{};
  std::unordered_map<std::string_view, std::vector<size_t>> users_{};  // arrays by chunk
  size_t unfinished_ = 0, chunks_of_arrays_ = 0;
  Content content_{};
  std::optional<Failure> failure_{};
  std::shared_ptr<void> owner_{};
  Spool spool_;
};

}  // namespace evenkeel::wire
