#include "flower/format/objects.h"

#include <openssl/evp.h>

#include <algorithm>
#include <set>

#include "base/plain/hex.h"
#include "base/plain/json.h"
#include "base/plain/text.h"
#include "flower/format/calls.h"
#include "flower/format/npy.h"

namespace evenkeel::flower {
namespace {

constexpr size_t kIdDigits = 64;
constexpr int kDeepest = 5;

/// Encodes text as Python's json.dumps does.
std::string json_text(std::string_view text) {
  EK_CHECK(is_utf8(text), kData, "the name \"", shown(text), "\" is not UTF-8");
  return Json(text).dump(-1, ' ', true);
}

std::string object_head(std::string_view type, std::span<const std::string> children, uint64_t body_bytes) {
  std::string head = concat(type, " ", join(children, ","), " ", body_bytes);
  head.push_back('\0');
  return head;
}

/// Returns the ids of children without repetitions, in the order of first use.
std::vector<std::string> unique_ids(const std::vector<Tree>& children) {
  std::vector<std::string> ids;
  std::set<std::string_view> seen;
  for (const auto& child : children)
    if (seen.insert(child.id).second) ids.push_back(child.id);
  return ids;
}

/// Returns the tree of an object whose children may contain repeated ids.
Tree tree_of(std::string id, std::vector<Tree> children) {
  std::set<std::string> seen;
  std::erase_if(children, [&](const Tree& child) { return !seen.insert(child.id).second; });
  return {.id = std::move(id), .children = std::move(children)};
}

/// Splits a sequence of memory pieces at given sizes.
class Cutter {
 public:
  explicit Cutter(std::span<const std::span<const std::byte>> pieces) : pieces_(pieces) {}

  std::vector<std::span<const std::byte>> take(uint64_t bytes) {
    std::vector<std::span<const std::byte>> taken;
    while (bytes > 0) {
      const auto rest = pieces_.front().subspan(used_);
      const size_t part = static_cast<size_t>(std::min<uint64_t>(bytes, rest.size()));
      if (part > 0) taken.push_back(rest.first(part));
      bytes -= part;
      used_ += part;
      if (used_ == pieces_.front().size()) {
        pieces_ = pieces_.subspan(1);
        used_ = 0;
      }
    }
    return taken;
  }

 private:
  std::span<const std::span<const std::byte>> pieces_;
  size_t used_ = 0;
};

/// Callbacks of nlohmann's SAX parser for a JSON object of strings, {"name": "id", ...}, whose order is kept.
struct ReferenceReader {
  std::vector<std::pair<std::string, std::string>> found{};
  std::set<std::string> names{};
  size_t most = 0;
  int depth = 0;
  std::string wrong{};

  bool refuse(std::string why) {
    wrong = std::move(why);
    return false;
  }
  bool other() { return refuse("a value is no text"); }
  bool null() { return other(); }
  bool boolean(bool) { return other(); }
  bool number_integer(int64_t) { return other(); }
  bool number_unsigned(uint64_t) { return other(); }
  bool number_float(double, const std::string&) { return other(); }
  bool binary(Json::binary_t&) { return other(); }
  bool start_array(size_t) { return other(); }
  bool end_array() { return true; }
  bool start_object(size_t) { return depth++ == 0 || other(); }
  bool end_object() { return true; }
  bool key(std::string& name) {
    if (!names.insert(name).second) return refuse(concat("\"", shown(name), "\" stands twice"));
    if (found.size() == most) return refuse(concat("more than ", most, " names"));
    found.emplace_back(name, "");
    return true;
  }
  bool string(std::string& text) {
    if (found.empty() || !is_object_id(text)) return refuse(concat("\"", shown(text), "\" is no object's id"));
    found.back().second = text;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const std::exception&) {
    return refuse(concat("no JSON at byte ", at));
  }
};

constexpr std::string_view type_of(const Config&) { return "ConfigRecord"; }
constexpr std::string_view type_of(const Metrics&) { return "MetricRecord"; }

}  // namespace

std::string object_id(std::string_view head, std::span<const std::span<const std::byte>> pieces) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1 &&
              EVP_DigestUpdate(context.get(), head.data(), head.size()) == 1;
  for (const auto piece : pieces) good = good && EVP_DigestUpdate(context.get(), piece.data(), piece.size()) == 1;
  EK_CHECK(good && EVP_DigestFinal_ex(context.get(), digest, &length) == 1, kInternal, "SHA-256 is not to be had");
  return to_hex({digest, length});
}

bool is_object_id(std::string_view text) { return is_hex(text, kIdDigits); }

uint64_t Object::bytes() const {
  uint64_t bytes = head.size();
  for (const auto piece : pieces) bytes += piece.size();
  return bytes;
}

ObjectView ObjectView::parse(std::string_view content, const Limits& limits) {
  const size_t nul = content.find('\0');
  const size_t first = content.find(' '), second = content.find(' ', first == std::string_view::npos ? 0 : first + 1);
  EK_CHECK(nul != std::string_view::npos && second < nul, kData, "data of ", content.size(), " bytes is no object");
  ObjectView view{.type = content.substr(0, first), .children = {}, .body = content.substr(nul + 1)};
  std::string_view ids = content.substr(first + 1, second - first - 1);
  EK_CHECK(ids.size() <= limits.objects * (kIdDigits + 1), kData, "an object has more than ", limits.objects,
           " children");
  while (!ids.empty()) {
    const size_t end = std::min(ids.find(','), ids.size());
    EK_CHECK(is_object_id(ids.substr(0, end)), kData, "an object names a child \"", shown(ids.substr(0, end)), "\"");
    view.children.push_back(ids.substr(0, end));
    EK_CHECK(end + 1 != ids.size(), kData, "an object's list of children ends in a comma");
    ids.remove_prefix(std::min(end + 1, ids.size()));
  }
  const std::string_view length = content.substr(second + 1, nul - second - 1);
  EK_CHECK(parse_number<uint64_t>(length) == view.body.size(), kData, "an object says it is of ", shown(length),
           " bytes and is of ", view.body.size());
  EK_CHECK(view.type == "ArrayChunk" || view.body.size() <= limits.structure, kData, "a ", shown(view.type), " of ",
           view.body.size(), " bytes, allowed: up to ", limits.structure);
  return view;
}

const ObjectView& ObjectView::of(std::string_view wanted) const {
  EK_CHECK(type == wanted, kData, "an object is a ", shown(type), ", expected a ", wanted);
  return *this;
}

// ---- arrays

PackedArrays::PackedArrays(std::vector<ArrayData> arrays, const PackOptions& options) : owner_(options.owner) {
  EK_CHECK(options.chunk_bytes >= 1024, kConfig, "chunks are of ", options.chunk_bytes,
           " bytes, allowed: 1024 or more");
  std::vector<std::pair<std::string, std::string>> references;
  std::vector<Tree> children;
  std::set<std::string_view> names;
  for (const auto& array : arrays) {
    EK_CHECK(names.insert(array.head.name).second, kData, "two arrays are called \"", shown(array.head.name), "\"");
    children.push_back(add_array(array, options));
    references.emplace_back(array.head.name, children.back().id);
  }
  const std::string body = references_to_json(references);
  const auto ids = unique_ids(children);
  std::string id = add({.id = {}, .head = object_head("ArrayRecord", ids, body.size()) + body}, structure_);
  tree_ = tree_of(std::move(id), std::move(children));
  arrays_ = std::move(arrays);
}

Tree PackedArrays::add_array(const ArrayData& array, const PackOptions& options) {
  const std::string image_head = npy_head(array.head);
  uint64_t data = 0;
  for (const auto piece : array.pieces) data += piece.size();
  EK_CHECK(data == array.head.bytes(), kData, "array \"", shown(array.head.name), "\" of ", array.head.bytes(),
           " bytes comes with ", data);
  Cutter cutter(array.pieces);
  std::vector<std::string> order, unique;
  ArrayBody body{.head = array.head, .chunks = {}};
  uint64_t left = image_head.size() + data;
  auto& chunks = chunks_.emplace_back();
  for (bool first = true; first || left > 0; first = false) {
    const uint64_t length = std::min<uint64_t>(left, options.chunk_bytes);
    const std::string_view front = first ? image_head : std::string_view();
    Object chunk{.id = {}, .head = object_head("ArrayChunk", {}, length).append(front)};
    chunk.pieces = cutter.take(length - front.size());
    order.push_back(add(std::move(chunk), chunks));
    left -= length;
  }
  std::vector<Tree> children;
  for (const auto& id : order) children.push_back({.id = id});
  unique = unique_ids(children);
  for (const auto& id : order)
    body.chunks.push_back(static_cast<size_t>(std::find(unique.begin(), unique.end(), id) - unique.begin()));
  const std::string json = to_json(body);
  std::string id = add({.id = {}, .head = object_head("Array", unique, json.size()) + json}, structure_);
  return tree_of(std::move(id), std::move(children));
}

std::string PackedArrays::add(Object object, std::vector<const Object*>& among) {
  object.id = object_id(object.head, object.pieces);
  const auto [entry, is_new] = objects_.try_emplace(object.id, std::move(object));
  if (is_new) among.push_back(&entry->second);
  return entry->first;
}

const Object* PackedArrays::find(std::string_view id) const {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : &found->second;
}

// ---- messages

Parcel::Parcel(Metadata metadata, const Content& content) : metadata_(std::move(metadata)) {
  std::vector<std::pair<std::string, std::string>> references;
  std::vector<Tree> children;
  for (const auto& [name, record] : content.records()) {
    children.push_back(add_record(record));
    references.emplace_back(name, children.back().id);
  }
  std::vector<Tree> dict{add("RecordDict", std::move(children), references_to_json(references))};
  tree_ = add("Message", std::move(dict), encode_message(metadata_, {}));
  metadata_.message_id = tree_.id;
}

Parcel::Parcel(Metadata metadata, const Failure& failure) : metadata_(std::move(metadata)), failure_(failure) {
  tree_ = add("Message", {}, encode_message(metadata_, failure_));
  metadata_.message_id = tree_.id;
}

Tree Parcel::add_record(const Record& record) {
  if (const auto* arrays = std::get_if<Arrays>(&record)) {
    EK_CHECK(arrays->packed, kInternal, "arrays that are sent have to be packed");
    packs_.push_back(arrays->packed);
    return arrays->packed->tree();
  }
  if (const auto* config = std::get_if<Config>(&record)) return add(type_of(*config), {}, encode(*config));
  const auto& metrics = std::get<Metrics>(record);
  return add(type_of(metrics), {}, encode(metrics));
}

Tree Parcel::add(std::string_view type, std::vector<Tree> children, std::string_view body) {
  Object object{.id = {}, .head = object_head(type, unique_ids(children), body.size()).append(body)};
  object.id = object_id(object.head);
  const auto entry = own_.try_emplace(object.id, std::move(object)).first;
  return tree_of(entry->first, std::move(children));
}

const Object* Parcel::find(std::string_view id) const {
  if (const auto found = own_.find(id); found != own_.end()) return &found->second;
  for (const auto& pack : packs_)
    if (const Object* object = pack->find(id)) return object;
  return nullptr;
}

std::vector<const Object*> Parcel::structure() const {
  std::vector<const Object*> all;
  for (const auto& [id, object] : own_) all.push_back(&object);
  for (const auto& pack : packs_) all.insert(all.end(), pack->structure().begin(), pack->structure().end());
  return all;
}

std::vector<std::vector<const Object*>> Parcel::chunks() const {
  std::vector<std::vector<const Object*>> all;
  for (const auto& pack : packs_) all.insert(all.end(), pack->chunks().begin(), pack->chunks().end());
  return all;
}

// ---- bodies

std::string references_to_json(const std::vector<std::pair<std::string, std::string>>& references) {
  std::vector<std::string> members;
  for (const auto& [name, id] : references) members.push_back(concat(json_text(name), ": ", json_text(id)));
  return concat("{", join(members), "}");
}

std::vector<std::pair<std::string, std::string>> references_from_json(std::string_view body, const Limits& limits) {
  ReferenceReader reader{.most = limits.objects};
  const bool read = Json::sax_parse(body, &reader);
  EK_CHECK(read && reader.depth == 1, kData,
           "a record of references is refused: ", reader.wrong.empty() ? "it is no object" : reader.wrong);
  return std::move(reader.found);
}

std::string to_json(const ArrayBody& body) {
  return concat(R"({"dtype": )", json_text(body.head.dtype), R"(, "shape": [)", join(body.head.shape),
                R"(], "stype": )", json_text(body.head.stype), R"(, "arraychunk_ids": [)", join(body.chunks), "]}");
}

ArrayBody array_from_json(std::string_view body, size_t children, const Limits& limits) {
  const JsonLimits bounds{.bytes = limits.structure, .depth = 3, .values = limits.objects * 2, .unique_keys = true};
  const Json json = parse_json(body, "an array's head", kData, bounds);
  const JsonView view(json, "an array's head");
  ArrayBody result;
  result.head.dtype = view.at("dtype").string();
  result.head.stype = view.at("stype").string();
  result.head.shape = view.at("shape").integers(0);
  EK_CHECK(result.head.shape.size() <= limits.axes, kData, "an array has ", result.head.shape.size(),
           " axes, allowed: up to ", limits.axes);
  EK_CHECK(children > 0, kData, "an array has no chunks");
  for (const int64_t index : view.at("arraychunk_ids").integers(0, static_cast<int64_t>(children) - 1))
    result.chunks.push_back(static_cast<size_t>(index));
  return result;
}

namespace {

void walk(const Tree& tree, int depth, const Limits& limits, size_t& nodes, std::set<std::string_view>& seen,
          std::vector<std::string>& ids) {
  EK_CHECK(depth <= kDeepest, kData, "a tree of objects is more than ", kDeepest, " deep");
  EK_CHECK(++nodes <= limits.objects, kData, "a message is of more than ", limits.objects, " objects");
  EK_CHECK(is_object_id(tree.id), kData, "a tree of objects names \"", shown(tree.id), "\", which is no id");
  if (seen.insert(tree.id).second) ids.push_back(tree.id);
  for (const auto& child : tree.children) walk(child, depth + 1, limits, nodes, seen, ids);
}

}  // namespace

std::vector<std::string> check_tree(const Tree& tree, const Limits& limits) {
  std::vector<std::string> ids;
  std::set<std::string_view> seen;
  size_t nodes = 0;
  walk(tree, 1, limits, nodes, seen, ids);
  return ids;
}

Arrays pack_arrays(std::vector<ArrayData> arrays, const PackOptions& options) {
  Arrays result;
  for (const auto& array : arrays) result.heads.push_back(array.head);
  result.packed = std::make_shared<const PackedArrays>(std::move(arrays), options);
  return result;
}

}  // namespace evenkeel::flower
