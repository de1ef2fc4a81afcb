/// \file  nlohmann::json under a short name, bounded parsing, and typed reading whose errors name file and place. For
/// foreign JSON and machine-written records; configuration is TOML (base/format/config_table.h). Whatever is read from
/// disk is parsed with parse_json and read through a JsonView: no exception of the library reaches a person.
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

/// What a text of JSON may be at most. The longest real ones: a tokenizer of 260,000 tokens and 580,000 merges has 2
/// million values, a data set of 170,000 rows 1 million, the header of 70,000 tensors 0.7 million.
struct JsonLimits {
  size_t bytes = size_t{512} << 20;
  size_t depth = 128;          ///< lists and objects within each other; what copies and destroys values recurses
  size_t values = 10'000'000;  ///< values and keys together
  bool unique_keys = false;    ///< an object that names a key twice is refused; without it the last one counts
};

/// Parses `text`, which holds one value and nothing after it. \throws `kind` with `origin` and the byte at which the
/// text went wrong or past a limit. \tparam J  Json, or OrderedJson where the order of keys means something
template <typename J = Json>
J parse_json(std::string_view text, std::string_view origin, ErrorKind kind = kData, const JsonLimits& limits = {});

/// Reads and parses a file.
template <typename J = Json>
J load_json(const std::filesystem::path& file, ErrorKind kind = kData, const JsonLimits& limits = {});

/// A value for a message: `"abc"`, `[1,2]`, shortened when long or deep, in at most about `limit` bytes.
template <std::same_as<Json> J>  // nothing is turned into JSON on the way: text has its own (base/plain/text.h)
std::string shown(const J& value, size_t limit = 60);

/// A value inside a document, with its place for errors: "config.json: rope.theta is "x", expected a number". Cheap to
/// copy; refers to the document, which must live longer.
/// Example:
///   const Json json = load_json(file, kCheckpoint);
///   const JsonView config(json, file.string(), kCheckpoint);
///   const int64_t rank = config.at("r").integer(1, 4096);
///   const bool flag = config.flag_or("use_rslora", false);
///   for (const auto& name : config.at("modules").items()) names.push_back(name.string());
class JsonView {
 public:
  /// A whole document. \param origin  what errors begin with: the file, and the line where a line is one document
  JsonView(const Json& document, std::string origin, ErrorKind kind = kData);
  JsonView(Json&&, std::string, ErrorKind = kData) = delete;

  const Json& json() const { return *value_; }
  /// "file: a.b[2]", or the origin for the whole document.
  std::string place() const;
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(document_->kind, concat(place(), parts...));
  }
  /// \throws "<place><parts>" unless `condition`. Example:  view.require(n < 5, " is ", n, ", allowed: up to 4")
  template <typename... Parts>
  void require(bool condition, const Parts&... parts) const {
    if (!condition) [[unlikely]]
      refuse(parts...);
  }

  /// Members of an object. \throws when this is no object.
  bool has(std::string_view key) const { return find(key).has_value(); }  ///< present and not null
  std::optional<JsonView> find(std::string_view key) const;               ///< nothing when absent or null
  JsonView at(std::string_view key) const;                                ///< \throws when absent; null is a value
  JsonView at(size_t index) const;                                        ///< of a list
  /// All entries of a list, in order; of an object, by key.
  std::vector<JsonView> items() const;
  std::vector<JsonView> members() const;
  const std::string& key() const { return *key_; }  ///< of a member
  size_t size() const { return value_->size(); }

  /// The value itself. \throws when it is of another type: what it is, what was expected.
  const JsonView& object() const;
  const JsonView& list() const;
  const std::string& string() const;
  bool flag() const;
  double number() const;  ///< a whole number is a number too
  /// A whole number from `least` to `most`, never wrapped around.
  int64_t integer(int64_t least = std::numeric_limits<int64_t>::min(),
                  int64_t most = std::numeric_limits<int64_t>::max()) const;
  std::vector<int64_t> integers(int64_t least = std::numeric_limits<int64_t>::min(),
                                int64_t most = std::numeric_limits<int64_t>::max()) const;
  std::vector<std::string> strings() const;

  /// The member `key`, or `otherwise` when it is absent or null.
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
  /// A value within `outer`: at `key` of an object, or at `index` of a list.
  JsonView(const Json& value, std::shared_ptr<const JsonView> outer, const std::string* key, size_t index)
      : value_(&value), document_(outer->document_), outer_(std::move(outer)), key_(key), index_(index) {}
  /// For the values in it. Nothing is put together for a path that no error asks for.
  std::shared_ptr<const JsonView> as_outer() const { return std::make_shared<JsonView>(*this); }
  std::string path() const;
  [[noreturn]] void expected(std::string_view what) const;

  static constexpr size_t kNone = static_cast<size_t>(-1);
  const Json* value_;
  std::shared_ptr<const Document> document_;
  std::shared_ptr<const JsonView> outer_{};  // the list or object that this value is in; null for the whole document
  const std::string* key_ = nullptr;         // in an object
  size_t index_ = kNone;                     // in a list
};

}  // namespace evenkeel
