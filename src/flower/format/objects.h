/// \file  Splits messages into objects and parses objects. An object is `Type SP child-ids SP body-length NUL body`,
/// and its id is the SHA-256 of all of it. The types form a tree: Message > RecordDict > ArrayRecord, ConfigRecord,
/// MetricRecord > Array > ArrayChunk.
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

namespace evenkeel::flower {

/// Returns the SHA-256 of the concatenation of `head` and `pieces`, in lower-case hex. Cost: 0.2 to 0.3 GB/s per
/// thread, 1.7 GB/s with SHA instructions.
std::string object_id(std::string_view head, std::span<const std::span<const std::byte>> pieces = {});
/// Returns true for 64 lower-case hex digits.
bool is_object_id(std::string_view text);

/// An object to send: an owned head, followed by borrowed pieces.
struct Object {
  std::string id;
  std::string head;  ///< the head of the object and its body, except the data of arrays
  std::vector<std::span<const std::byte>> pieces{};

  uint64_t bytes() const;
};

/// A received object, as views of its content.
struct ObjectView {
  std::string_view type;
  std::vector<std::string_view> children;
  std::string_view body;

  /// Parses an object. \throws kData when the content is no object, its length is wrong, or a limit is exceeded
  static ObjectView parse(std::string_view content, const Limits& limits);
  /// Returns *this. \throws kData unless the type is `wanted`
  const ObjectView& of(std::string_view wanted) const;
};

/// Holds the objects of arrays, each once, and their tree. It is immutable; any number of messages and threads may
/// share it.
class PackedArrays {
 public:
  /// \throws as pack_arrays()
  PackedArrays(std::vector<ArrayData> arrays, const PackOptions& options);
  const Tree& tree() const { return tree_; }                        ///< the tree of the ArrayRecord
  const std::vector<ArrayData>& arrays() const { return arrays_; }  ///< in the order of the constructor's argument
  const Object* find(std::string_view id) const;
  const std::vector<const Object*>& structure() const { return structure_; }  ///< the ArrayRecord, and each Array
  /// Returns the new chunks of each array, in order. A chunk that several arrays share is listed only at its first use.
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

/// A message to send: its objects, with arrays by reference.
class Parcel {
 public:
  /// Packs a message.
  /// \param metadata  its message_id is filled in
  /// \throws kData for values that a record may not hold
  Parcel(Metadata metadata, const Content& content);
  Parcel(Metadata metadata, const Failure& failure);

  const Metadata& metadata() const { return metadata_; }
  const std::optional<Failure>& failure() const { return failure_; }
  const Tree& tree() const { return tree_; }
  const Object* find(std::string_view id) const;
  /// structure() returns all objects but chunks, chunks() the chunks of each array. A receiver that gets the structure
  /// first knows the destination of each chunk. An object that several records or arrays share may be listed more than
  /// once.
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

/// Formats names and ids as the body of a structure object, as Python's json.dumps does: `{"a": "9f..", "b": "9f.."}`.
std::string references_to_json(const std::vector<std::pair<std::string, std::string>>& references);
/// Parses such a body. \throws kData when it is invalid, or has a repeated name or an invalid id
std::vector<std::pair<std::string, std::string>> references_from_json(std::string_view body, const Limits& limits);

/// The body of an Array object: the array's head, and the index of each chunk among the object's children, in order.
struct ArrayBody {
  ArrayHead head;  ///< without its name
  std::vector<size_t> chunks;
};
std::string to_json(const ArrayBody& body);
/// Parses the body of an Array object.
/// \param children  number of children of the object; every index must be below it
/// \throws kData when the body is invalid
ArrayBody array_from_json(std::string_view body, size_t children, const Limits& limits);

/// Returns all ids of a tree, each once, parents first. \throws kData for an invalid id, more than five levels or too
/// many nodes
std::vector<std::string> check_tree(const Tree& tree, const Limits& limits);

/// Hashes the data and divides it into chunks without copying it. One result may be sent to all nodes of a round.
/// \throws kData when a length differs from the head's, or two arrays have one name; kConfig for chunks of less than
/// 1024 bytes
Arrays pack_arrays(std::vector<ArrayData> arrays, const PackOptions& options = {});

}  // namespace evenkeel::flower
