#include "flower/server/assembly.h"

#include <algorithm>
#include <cstring>

#include "base/plain/text.h"
#include "flower/format/calls.h"

namespace evenkeel::flower {
namespace {

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

// ---- an array

ArrivingArray::ArrivingArray(ArrayHead head, std::vector<std::string> chunks)
    : head_(std::move(head)), bytes_(head_.bytes()), chunks_(std::move(chunks)) {
  EK_CHECK(head_.stype == kNumpy, kData, "array \"", shown(head_.name), "\" is serialised as \"", shown(head_.stype),
           "\", allowed: ", kNumpy);
}

void ArrivingArray::place(std::span<std::byte> place) {
  EK_CHECK(place.size() == bytes_, kInternal, "array \"", shown(head_.name), "\" of ", bytes_,
           " bytes was given a place of ", place.size());
  place_ = place;
}

void ArrivingArray::take_head(std::string_view& chunk) {
  const auto take = [&](size_t wanted) {
    const size_t taken = std::min(wanted - std::min(wanted, image_head_.size()), chunk.size());
    image_head_.append(chunk.substr(0, taken));
    chunk.remove_prefix(taken);
    return image_head_.size() >= wanted;
  };
  if (!take(kNpyPreamble) || !take(npy_head_bytes(image_head_))) return;
  if (parse_npy_head(image_head_, head_).fortran_order) fortran_.emplace(head_, place_);
  in_data_ = true;
}

ArrivingArray::Put ArrivingArray::put(std::string_view chunk) {
  const size_t before = chunk.size();
  if (!in_data_) take_head(chunk);
  EK_CHECK(chunk.size() <= bytes_ - filled_, kData, "array \"", shown(head_.name), "\" holds more than its ", bytes_,
           " bytes");
  const auto target = place_.subspan(filled_, chunk.size());
  if (fortran_)
    fortran_->put(as_bytes(chunk));
  else if (!chunk.empty())
    std::memcpy(target.data(), chunk.data(), chunk.size());
  filled_ += chunk.size();
  ++done_;
  EK_CHECK(next() || (in_data_ && filled_ == bytes_), kData, "array \"", shown(head_.name), "\" holds ", filled_,
           " of its ", bytes_, " bytes");
  return {.data = target, .skipped = before - chunk.size(), .whole = !fortran_};
}

// ---- structure of the message
//
// Objects arrive one by one, in any order. `known_ids_` are all ids of the announced tree. Structure objects are kept
// in `nodes_` until the tree from the root is complete: `missing_` are children of arrived objects that have not
// arrived, `expanded_` those whose children were looked at. When `missing_` is empty, build() reads the message's
// content once (`built_`), asks for the places of its arrays, and the chunks that wait in the spool are copied there.

Assembly::Assembly(const Tree& tree, const Limits& limits, BufferAllocator place, std::filesystem::path folder,
                   uint64_t most_spooled)
    : limits_(limits),
      place_(std::move(place)),
      ids_(check_tree(tree, limits)),
      known_ids_(ids_.begin(), ids_.end()),
      missing_{tree.id},
      spool_(std::move(folder), most_spooled) {}

void Assembly::take(std::string_view id, std::string_view content) {
  EK_CHECK(known_ids_.contains(id), kData, "object ", shown(id, 80), " is not of this message");
  EK_CHECK(object_id(content) == id, kData, "object ", id, " is damaged: ", content.size(),
           " bytes of another SHA-256");
  const std::lock_guard lock(mutex_);
  if (error_) throw *error_;
  if (nodes_.contains(id) || chunks_.contains(id)) return;
  try {
    take_checked(id, content);
  } catch (const Error& error) {
    error_ = error;
    throw;
  } catch (const std::exception& error) {
    const std::string_view text = error.what();  // of LibTorch: with a trace in further lines
    error_ = Error(kInternal, std::string(text.substr(0, text.find('\n'))));
    throw *error_;
  }
}

void Assembly::take_checked(std::string_view id, std::string_view content) {
  const ObjectView view = ObjectView::parse(content, limits_);
  for (const auto child : view.children)
    EK_CHECK(known_ids_.contains(child), kData, "object ", id, " has a child ", child, " that was not announced");
  bytes_ += content.size();
  if (view.type == "ArrayChunk")
    take_chunk(id, view.body);
  else
    take_structure(id, view);
}

void Assembly::take_structure(std::string_view id, const ObjectView& view) {
  structure_bytes_ += view.body.size() + view.children.size() * 64;
  EK_CHECK(structure_bytes_ <= limits_.structure, kData, "the structure of a message has more than ", limits_.structure,
           " bytes, apart from its arrays");
  nodes_.emplace(id, Node{.type = std::string(view.type),
                          .children = {view.children.begin(), view.children.end()},
                          .body = std::string(view.body)});
  if (missing_.contains(id)) expand(std::string(id), 1);
  if (!missing_.empty() || built_) return;
  built_ = true;
  build();
  ask_for_places();
}

void Assembly::expand(const std::string& id, size_t depth) {
  constexpr size_t kDeepest = 5;  // Message, RecordDict, ArrayRecord, Array, ArrayChunk
  EK_CHECK(depth <= kDeepest, kData, "a message's objects are more than five deep");
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) {
    EK_CHECK(!chunks_.contains(id), kData, "an ArrayChunk stands where a record should");
    missing_.insert(id);
    return;
  }
  missing_.erase(id);
  if (!expanded_.insert(id).second || found->second.type == "Array") return;  // the children of an Array are its chunks
  for (const auto& child : found->second.children) expand(child, depth + 1);
}

// ---- content of the message

const Assembly::Node& Assembly::node(const std::string& id, std::string_view type) const {
  const Node& found = nodes_.at(id);
  EK_CHECK(found.type == type, kData, "object ", id, " is a ", shown(found.type), ", expected a ", type);
  return found;
}

void Assembly::build() {
  const Node& root = node(ids_.front(), "Message");
  failure_ = decode_message(root.body).failure;
  size_t objects = expanded_.size();
  if (!failure_) {
    EK_CHECK(root.children.size() == 1, kData, "a message has ", root.children.size(), " contents");
    const Node& dict = node(root.children.front(), "RecordDict");
    for (const auto& [name, id] : references_from_json(dict.body, limits_)) {
      EK_CHECK(std::find(dict.children.begin(), dict.children.end(), id) != dict.children.end(), kData, "record \"",
               shown(name), "\" is no child of its RecordDict");
      content_.add(name, build_record(nodes_.at(id)));
    }
  }
  for (size_t i = 0; i < arrays_.size(); ++i)
    for (const auto& id : std::set<std::string_view>(arrays_[i].chunks().begin(), arrays_[i].chunks().end()))
      users_[id].push_back(i);
  objects += users_.size();
  EK_CHECK(objects == ids_.size(), kData, "a message announces ", ids_.size(), " objects and has use for ", objects);
}

Record Assembly::build_record(const Node& node) {
  if (node.type == "ArrayRecord") return build_arrays(node);
  EK_CHECK(node.type == "ConfigRecord" || node.type == "MetricRecord", kData, "a message holds a ", shown(node.type),
           ", known: ArrayRecord, ConfigRecord, MetricRecord");
  EK_CHECK(node.body.size() <= limits_.record, kData, "a ", node.type, " of ", node.body.size(),
           " bytes, allowed: up to ", limits_.record);
  Items items = decode_items(node.body);
  if (node.type == "ConfigRecord") return Config(std::move(items));
  Metrics metrics(std::move(items));
  encode(metrics);  // checks the values
  return metrics;
}

Arrays Assembly::build_arrays(const Node& record) {
  Arrays result;
  for (const auto& [name, id] : references_from_json(record.body, limits_)) {
    EK_CHECK(std::find(record.children.begin(), record.children.end(), id) != record.children.end(), kData, "array \"",
             shown(name), "\" is no child of its ArrayRecord");
    const Node& array = node(id, "Array");
    ArrayBody body = array_from_json(array.body, array.children.size(), limits_);
    body.head.name = name;
    std::vector<std::string> chunks;
    for (const size_t index : body.chunks) chunks.push_back(array.children[index]);
    chunks_of_arrays_ += chunks.size();
    EK_CHECK(chunks_of_arrays_ <= 4 * limits_.objects, kData, "a message has arrays of more than ", 4 * limits_.objects,
             " chunks");
    arrays_.emplace_back(body.head, std::move(chunks));
    EK_CHECK(arrays_.size() <= limits_.arrays, kData, "a message has more than ", limits_.arrays, " arrays");
    result.heads.push_back(std::move(body.head));
  }
  return result;
}

void Assembly::ask_for_places() {
  uint64_t bytes = 0;
  for (const auto& array : arrays_) {
    EK_CHECK(array.bytes() <= limits_.data - bytes, kData, "a message holds arrays of more than ", limits_.data,
             " bytes");
    bytes += array.bytes();
  }
  EK_CHECK(place_ || arrays_.empty(), kData, "a message holds ", arrays_.size(), " arrays where none are wanted");
  if (place_ && !failure_) {
    const ReceiveBuffers places = place_(content_);
    if (!places.wanted) {
      arrays_.clear();
      users_.clear();
      return;
    }
    EK_CHECK(places.arrays.size() == arrays_.size(), kInternal, arrays_.size(), " arrays were given ",
             places.arrays.size(), " places");
    owner_ = places.owner;
    for (size_t i = 0; i < arrays_.size(); ++i) arrays_[i].place(places.arrays[i]);
  }
  unfinished_ = arrays_.size();
  for (size_t i = 0; i < arrays_.size(); ++i) advance(i, {}, {});
}

// ---- data of arrays

void Assembly::take_chunk(std::string_view id, std::string_view bytes) {
  EK_CHECK(!missing_.contains(id), kData, "an ArrayChunk stands where a record should");
  EK_CHECK(bytes.size() <= limits_.chunk, kData, "a chunk of ", bytes.size(), " bytes, allowed: up to ", limits_.chunk);
  Chunk& chunk = chunks_[std::string(id)];
  chunk.length = bytes.size();
  if (const auto users = users_.find(id); users != users_.end())
    for (const size_t array : users->second) advance(array, id, bytes);
  const bool found_again = chunk.placed && chunk.placed->whole && chunk.placed->skipped == 0;
  if ((!built_ || waited_for(id)) && !found_again) chunk.spooled = spool_.put(bytes);
}

/// Returns true if an array needs this chunk at a later position.
bool Assembly::waited_for(std::string_view id) const {
  const auto users = users_.find(id);
  if (users == users_.end()) return false;
  return std::any_of(users->second.begin(), users->second.end(), [&](size_t array) {
    const auto& all = arrays_[array].chunks();
    const std::string* next = arrays_[array].next();
    return next && std::find(all.begin() + (next - all.data()), all.end(), id) != all.end();
  });
}

/// Appends available chunks to an array: the one that has just arrived, and those that arrived out of order.
void Assembly::advance(size_t index, std::string_view id, std::string_view bytes) {
  ArrivingArray& array = arrays_[index];
  while (const std::string* next = array.next()) {
    const bool just_come = *next == id;
    const auto earlier = just_come ? std::nullopt : stored(*next);
    if (!just_come && !earlier) return;
    const auto put = array.put(just_come ? bytes : std::string_view(*earlier));
    Chunk& chunk = chunks_.at(*next);
    if (!chunk.placed || (put.whole && put.skipped == 0)) chunk.placed = put;
  }
  --unfinished_;
}

/// Returns a chunk that arrived earlier, from an array or from the spool.
std::optional<std::string> Assembly::stored(const std::string& id) const {
  const auto found = chunks_.find(id);
  if (found == chunks_.end()) return {};
  const Chunk& chunk = found->second;
  if (chunk.placed && chunk.placed->whole && chunk.placed->skipped == 0) {
    const auto data = chunk.placed->data;
    return std::string(reinterpret_cast<const char*>(data.data()), data.size());
  }
  if (chunk.spooled) return spool_.get(*chunk.spooled, chunk.length);
  return {};
}

// ---- queries

bool Assembly::has(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  return nodes_.contains(id) || chunks_.contains(id);
}

bool Assembly::complete() const {
  const std::lock_guard lock(mutex_);
  return built_ && !error_ && unfinished_ == 0;
}

bool Assembly::failed() const {
  const std::lock_guard lock(mutex_);
  return error_.has_value();
}

std::vector<std::string> Assembly::missing_structure() const {
  const std::lock_guard lock(mutex_);
  return {missing_.begin(), missing_.end()};
}

size_t Assembly::arrays() const {
  const std::lock_guard lock(mutex_);
  return arrays_.size();
}

std::optional<std::string> Assembly::next_chunk(size_t array) const {
  const std::lock_guard lock(mutex_);
  const std::string* next = arrays_[array].next();
  return next ? std::optional(*next) : std::nullopt;
}

uint64_t Assembly::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace evenkeel::flower
