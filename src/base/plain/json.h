/// \file  Wraps nlohmann::json: short type names, parsing with limits, and typed reading with errors that name file and
/// place. It is used for foreign JSON and machine-written records; configuration is TOML (base/format/config_table.h).
/// JSON from disk is parsed with parse_json() and read through a JsonView, so that no exception of nlohmann::json
/// reaches the caller.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/error.h"

namespace evenkeel {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

/// Sets the limits of one JSON text. The largest real texts: a tokenizer of 260,000 tokens and 580,000 merges has 2
/// million values, a data set of 170,000 rows 1 million, the header of 70,000 tensors 0.7 million.
struct JsonLimits {
  size_t bytes = size_t{512} << 20;  ///< length of the text
  size_t depth = 128;          ///< nesting of lists and objects; copying and destroying a value recurses this deep
  size_t values = 10'000'000;  ///< values and keys together
  bool unique_keys = false;    ///< true: a repeated key of an object is an error; false: its last value counts
};

/// Parses `text`, which must hold exactly one JSON value.
/// \throws `kind` naming `origin` and the byte of the syntax error or of the exceeded limit.
/// \tparam J  Json, or OrderedJson to keep the order of keys
template <typename J = Json>
J parse_json(std::string_view text, std::string_view origin, ErrorKind kind = kData, const JsonLimits& limits = {});

/// A key that stands twice in one object.
struct RepeatedKey {
  std::string key;
  /// Index of the entry of a list that holds the object, see repeated_keys(); none: no entry holds it.
  std::optional<size_t> entry{};
  /// Returns "the key "prompt" stands twice in one object".
  std::string text() const;
};
/// Returns the keys of `text` that stand twice in one object, in the order of the text. Cost: one pass over text and
/// value if there are none, otherwise a second parse.
/// \param value  what parse_json() returned for `text`
/// \param list  key of the outermost object whose list RepeatedKey::entry counts in; empty: the text is the list
std::vector<RepeatedKey> repeated_keys(std::string_view text, const Json& value, std::string_view list = "");

/// Reads and parses a file. \throws kIo when it cannot be read, otherwise as parse_json().
template <typename J = Json>
J load_json(const std::filesystem::path& file, ErrorKind kind = kData, const JsonLimits& limits = {});

/// Returns a value as text for a message: `"abc"`, `[1,2]`. Long or deep values are shortened to about `limit` bytes.
/// A std::string does not compile here: use shown() of base/plain/text.h.
template <std::same_as<Json> J>  // accepts no type that converts to Json
std::string shown(const J& value, size_t limit = 60);

/// Refers to a value inside a document and knows its place for errors: "config.json: rope.theta is "x", expected a
/// number". It is cheap to copy. The document must outlive it. \throws the error kind of the document from all
/// readers, naming the place
/// Example:
///   const Json json = load_json(file, kCheckpoint);
///   const JsonView config(json, file.string(), kCheckpoint);
///   const int64_t rank = config.at("r").integer(1, 4096);
///   const bool flag = config.flag_or("use_rslora", false);
///   for (const auto& name : config.at("modules").items()) names.push_back(name.string());
class JsonView {
 public:
  /// Refers to a whole document.
  /// \param origin  the beginning of error messages: the file, with the line number in files of one document per line
  /// \param kind  the kind of all errors
  JsonView(const Json& document, std::string origin, ErrorKind kind = kData);
  JsonView(Json&&, std::string, ErrorKind = kData) = delete;

  /// Returns the value.
  const Json& json() const { return *value_; }
  /// Returns "ORIGIN: a.b[2]", or only the origin for the whole document.
  std::string place() const;
  /// Throws an error with the place followed by `parts`.
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(document_->kind, concat(place(), parts...));
  }
  /// Throws as refuse() unless `condition`. Example:  view.require(n < 5, " is ", n, ", allowed: up to 4")
  template <typename... Parts>
  void require(bool condition, const Parts&... parts) const {
    if (!condition) [[unlikely]]
      refuse(parts...);
  }

  /// The next functions access members of an object and entries of a list. has(), find(), at(key) and members() \throw
  /// unless the value is an object, at(index) and items() unless it is a list.
  bool has(std::string_view key) const { return find(key).has_value(); }  ///< true when the key is present and not null
  std::optional<JsonView> find(std::string_view key) const;               ///< empty when the key is absent or null
  JsonView at(std::string_view key) const;  ///< \throws when the key is absent, not when its value is null
  JsonView at(size_t index) const;          ///< entry of a list; \throws when there are too few
  /// Returns all entries of a list, in order.
  std::vector<JsonView> items() const;
  /// Returns all members of an object, sorted by key.
  std::vector<JsonView> members() const;
  /// Returns the key of a member. REQUIRES a view that members(), find() or at(key) returned: an entry of a list and
  /// the whole document have no key.
  const std::string& key() const { return *key_; }
  /// Returns the number of entries or members; 1 for a number, string or flag, 0 for null. Does not throw.
  size_t size() const { return value_->size(); }

  /// object() and list() check the type and return this view, as in view.list().size(). The others return the value.
  /// \throws when the value has another type, naming the value and the expected type.
  const JsonView& object() const;
  const JsonView& list() const;
  const std::string& string() const;
  bool flag() const;
  double number() const;  ///< accepts whole numbers too
  /// Returns a whole number. \throws when it is not in [least, most] or does not fit 64 bits.
  int64_t integer(int64_t least = std::numeric_limits<int64_t>::min(),
                  int64_t most = std::numeric_limits<int64_t>::max()) const;
  std::vector<int64_t> integers(int64_t least = std::numeric_limits<int64_t>::min(),
                                int64_t most = std::numeric_limits<int64_t>::max()) const;
  std::vector<std::string> strings() const;

  /// The next functions return the member `key`, or `otherwise` when it is absent or null.
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t least = std::numeric_limits<int64_t>::min(),
                     int64_t most = std::numeric_limits<int64_t>::max()) const;
  double number_or(std::string_view key, double otherwise) const;
  bool flag_or(std::string_view key, bool otherwise) const;
  std::string string_or(std::string_view key, std::string_view otherwise) const;

 private:
  struct Document {
    std::string origin;
    ErrorKind kind;
  };
  /// Refers to a value within `outer`: a member with `key`, or entry `index` of a list.
  JsonView(const Json& value, std::shared_ptr<const JsonView> outer, const std::string* key, size_t index)
      : value_(&value), document_(outer->document_), outer_(std::move(outer)), key_(key), index_(index) {}
  /// Returns a copy of this view, to which the views of its members point. The text of a path is built only when an
  /// error needs it.
  std::shared_ptr<const JsonView> as_outer() const { return std::make_shared<JsonView>(*this); }
  std::string path() const;
  [[noreturn]] void expected(std::string_view what) const;

  static constexpr size_t kNone = static_cast<size_t>(-1);
  const Json* value_;
  std::shared_ptr<const Document> document_;
  std::shared_ptr<const JsonView> outer_{};  // the list or object that holds this value; null for the whole document
  const std::string* key_ = nullptr;         // key of a member; null for a list entry
  size_t index_ = kNone;                     // index of a list entry
};

}  // namespace evenkeel
