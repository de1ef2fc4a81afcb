/// \file  Assembles a message from its objects, which may arrive in any order. When the structure is complete, the data
/// of the arrays is written straight to the buffers. Nodes use it for pulled messages, the coordinator for pushed
/// replies.
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

namespace evenkeel::flower {

/// Writes the chunks of one array to its buffer, in order.
class ArrivingArray {
 public:
  /// \param chunks  ids of all chunks, in order
  /// \throws kData for another serialisation than NumPy's, or an invalid head
  ArrivingArray(ArrayHead head, std::vector<std::string> chunks);

  const ArrayHead& head() const { return head_; }
  uint64_t bytes() const { return bytes_; }
  /// Sets the buffer, of exactly bytes() bytes, which is borrowed. Call it before put().
  void place(std::span<std::byte> place);
  /// Returns the id of the next chunk; null when all are stored.
  const std::string* next() const { return done_ == chunks_.size() ? nullptr : &chunks_[done_]; }
  const std::vector<std::string>& chunks() const { return chunks_; }

  /// Describes where a chunk was stored. `skipped` bytes of it were the NumPy head. `data` is the rest, in the buffer.
  struct Put {
    std::span<const std::byte> data{};
    size_t skipped = 0;
    bool whole = false;  ///< true: data holds the rest of the chunk unchanged (not reordered)
  };
  /// Stores the next chunk. \throws kData when its head or length is not as announced
  Put put(std::string_view chunk);

 private:
  void take_head(std::string_view& chunk);

  ArrayHead head_;
  uint64_t bytes_;
  std::vector<std::string> chunks_;
  size_t done_ = 0;
  std::span<std::byte> place_{};
  std::string image_head_{};  // bytes of the NumPy head until it is complete
  bool in_data_ = false;
  uint64_t filled_ = 0;
  std::optional<FortranOrder> fortran_{};
};

/// Assembles one message. Any thread may call. After an error, every further object is rejected with the same error.
class Assembly {
 public:
  /// \param place                 provides the buffers; if empty, messages with arrays are refused
  /// \param folder, most_spooled  see flower/server/spool.h
  /// \throws kData for an invalid tree (check_tree)
  Assembly(const Tree& tree, const Limits& limits, BufferAllocator place, std::filesystem::path folder,
           uint64_t most_spooled);

  /// Verifies an object against its id and stores it. An object that is stored already is accepted. \throws kData when
  /// it is not of this message, damaged or inconsistent; an Error of `place`; kInternal for other exceptions of `place`
  void take(std::string_view id, std::string_view content);
  /// Returns true if the object belongs to this message.
  bool announces(std::string_view id) const { return known_ids_.contains(id); }
  bool has(std::string_view id) const;
  bool complete() const;
  bool failed() const;  ///< true: an error ended the assembly

  /// All ids of the tree, each once.
  const std::vector<std::string>& ids() const { return ids_; }
  /// Returns the ids of the structure objects that are known to be missing; empty when the structure is complete.
  std::vector<std::string> missing_structure() const;
  /// Returns the number of arrays, once the structure is complete. next_chunk() returns the id of the chunk that an
  /// array needs next; nothing when the array is complete.
  size_t arrays() const;
  std::optional<std::string> next_chunk(size_t array) const;

  /// These return parts of the message. They are valid when complete() is true.
  const Content& content() const { return content_; }
  const std::optional<Failure>& failure() const { return failure_; }
  const std::shared_ptr<void>& owner() const { return owner_; }
  uint64_t bytes() const;  ///< bytes of the objects stored so far

 private:
  /// A structure object: any object but a chunk.
  struct Node {
    std::string type;
    std::vector<std::string> children;
    std::string body;
  };
  /// A chunk that has arrived: stored in a buffer, spooled, or both.
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
  std::set<std::string, std::less<>> missing_{};  // ids of structure objects that are referred to and have not arrived
  std::set<std::string, std::less<>> expanded_{};
  bool built_ = false;
  std::map<std::string, Chunk, std::less<>> chunks_{};
  std::vector<ArrivingArray> arrays_{};
  std::unordered_map<std::string_view, std::vector<size_t>> users_{};  // indices of arrays, by chunk
  size_t unfinished_ = 0, chunks_of_arrays_ = 0;
  Content content_{};
  std::optional<Failure> failure_{};
  std::shared_ptr<void> owner_{};
  Spool spool_;
};

}  // namespace evenkeel::flower
