/// \file  The objects that a message is cut into: `Type SP child-ids SP body-length NUL body`, known by the SHA-256 of
/// all of it. Message > RecordDict > ArrayRecord, ConfigRecord, MetricRecord > Array > ArrayChunk.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flower/format/flwr_message.h"
#include "flower/format/record_dict.h"

namespace evenkeel::wire {

/// SHA-256 of pieces in turn, in lower-case hex. 0.2 to 0.3 GB/s a thread, 1.7 with instructions for it.
std::string object_id(std::string_view head, std::span<const std::span<const std::byte>> pieces = {});
/// 64 lower-case hex digits.
bool is_object_id(std::string_view text);

/// An object that is to be sent: what is ours of it, then what is borrowed.
struct Object {
  std::string id;
  std::string head;  ///< the head of the object and, but for data of arrays, its body
  std::vector<std::span<const std::byte>> pieces{};

  uint64_t bytes() const;
};

/// An object that has arrived. Views of its content.
struct ObjectView {
  std::string_view type;
  std::vector<std::string_view> children;
  std::string_view body;

  /// \throws kData when the content is no object, its length is not what it says, or a limit is passed.
  static ObjectView parse(std::string_view content, const Limits& limits);
  /// \throws kData unless it is of `wanted`
  const ObjectView& of(std::string_view wanted) const;
};

/// The objects of arrays, each once, and their trees. Immutable, for any number of messages and threads.
class PackedArrays {
 public:
  PackedArrays(std::vector<ArrayData> arrays, const PackOptions& options);
  const Tree& tree() const { return tree_; }                        ///< of the ArrayRecord
  const std::vector<ArrayData>& arrays() const { return arrays_; }  ///< as they were given
  const Object* find(std::string_view id) const;
  const std::vector<const Object*>& structure() const { return structure_; }  ///< the ArrayRecord, and each Array
  /// The chunks of each array in order; one that several arrays or places share stands where it is used first.
  const std::vector<std::vector<const Object*>>& chunks() const { return chunks_; }

 private:
  Tree add_array(const ArrayData& array, const PackOptions& options);
  std::string add(Object object, std::vector<const Object*>& among);

  std::map<std::string, Object, std::less<>> objects_;
  std::vector<const Object*> structure_;
  std::vector<std::vector<const Object*>> chunks_;
  std::vector<ArrayData> arrays_;
  Tree tree_;
  std::shared_ptr<const void> owner_;
};

/// A message that is to be sent: its objects, shared ones by reference.
class Parcel {
 public:
  /// \param metadata  its message_id is filled in. \throws kData for values that a record may not hold.
  Parcel(Metadata metadata, const Content& content);
  Parcel(Metadata metadata, const Failure& failure);

  const Metadata& metadata() const { return metadata_; }
  const std::optional<Failure>& failure() const { return failure_; }
  const Tree& tree() const { return tree_; }
  const Object* find(std::string_view id) const;
  /// All objects, those that say what the message is and then the chunks of each array: who takes them in this order
  /// knows where each chunk belongs when it arrives. One of several records or arrays may stand more than once.
  std::vector<const Object*> structure() const;
  std::vector<std::vector<const Object*>> chunks() const;

 private:
  Tree add_record(const Record& record);
  Tree add(std::string_view type, std::vector<Tree> children, std::string_view body);

  Metadata metadata_;
  std::optional<Failure> failure_;
  std::map<std::string, Object, std::less<>> own_;
  std::vector<std::shared_ptr<const PackedArrays>> packs_;
  Tree tree_;
};

/// Bodies of structure objects. Names to ids, in Python's spelling: `{"a": "9f..", "b": "9f.."}`.
std::string references_to_json(const std::vector<std::pair<std::string, std::string>>& references);
/// \throws kData for what is no such object, names a name twice, or an id that is none.
std::vector<std::pair<std::string, std::string>> references_from_json(std::string_view body, const Limits& limits);

/// The body of an Array: its head, and which of the object's children its chunks are, in order.
struct ArrayBody {
  ArrayHead head;  ///< without its name
  std::vector<size_t> chunks;
};
std::string to_json(const ArrayBody& body);
/// \param children  how many the object has: every index is below. \throws kData
ArrayBody array_from_json(std::string_view body, size_t children, const Limits& limits);

/// All ids of a tree, each once, parents first. \throws kData for a tree that is too deep (five levels) or has too many
/// nodes.
std::vector<std::string> check_tree(const Tree& tree, const Limits& limits);

/// Hashes the data and cuts it into chunks; nothing is copied. One pack serves all nodes of a round.
/// \throws kData when pieces and head disagree in length, or two arrays have one name.
Arrays pack_arrays(std::vector<ArrayData> arrays, const PackOptions& options = {});

}  // namespace evenkeel::wire
