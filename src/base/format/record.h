/// \file  Converts structs to JSON objects and back. A struct lists its fields once, in visit(), which both directions
/// call:
///
///   struct Upload {
///     int64_t steps = 0;
///     std::map<std::string, double> metrics;
///     void visit(auto& field) {
///       field("steps", steps);
///       field("metrics", metrics);
///     }
///   };
///   const Json json = record::write(upload);
///   const auto again = record::read<Upload>(JsonView(json, "here"));
///
/// The type of a field may be int64_t, double, bool, std::string, an enum with names() (base/format/config_table.h), a
/// [N] int64 tensor, another struct with visit(), and lists, maps by name and optionals of these. An integer must be 0
/// or more; field("key", value, least) sets another minimum. A double must be finite, because JSON has only null for
/// other values. An empty optional is not written. Reading appends to a list and adds to a map, so the default values
/// of these fields should be empty. Any other type needs to_json(value) and from_json(view, value).
///
/// field.optional("key", value) reads a field that older files lack: if the key is missing, the value is unchanged.
///
/// holds() begins a group of fields that are present or absent together. In this example the group is the content of
/// `std::optional<Use> use`; its keys stand in the enclosing object:
///
///   if (field.holds("layers", use.has_value())) (use ? *use : use.emplace()).visit(field);
///
/// The first argument is the key of a field that the group always writes. When writing, holds() returns its second
/// argument. When reading, it returns true if the object has the key.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_table.h"
#include "base/plain/json.h"

namespace evenkeel::record {

/// Convert an int64 tensor [N] to a vector, and back.
std::vector<int64_t> numbers_of(const at::Tensor& tensor_N);
at::Tensor tensor_of(const std::vector<int64_t>& numbers);

class Writer;
class Reader;

/// Matches structs with visit().
template <typename T>
concept Visited = requires(T& value, Writer& writer) {
  value.visit(writer);
};

/// Matches types with their own to_json() and from_json().
template <typename T>
concept Custom = requires(const T& value, T& place, const JsonView& view) {
  { to_json(value) } -> std::same_as<OrderedJson>;
  from_json(view, place);
};

/// Returns the JSON object of `value`, with the keys in the order of visit().
template <Visited T>
OrderedJson write(T value);

/// Reads a struct from an object. Keys that visit() does not list are ignored.
/// \throws the error kind of `view`, naming the place, when a key is missing, has another type or is out of range.
template <Visited T>
T read(const JsonView& view);

/// The `field` argument of visit() while a struct is written.
class Writer {
 public:
  template <typename T>
  void operator()(std::string_view key, const T& value) {
    json_[std::string(key)] = encoded(value);
  }
  template <typename T>
  void operator()(std::string_view key, const std::optional<T>& value) {
    if (value) (*this)(key, *value);
  }
  void operator()(std::string_view key, int64_t value, int64_t /*least*/) { (*this)(key, value); }
  template <typename T>
  void optional(std::string_view key, const T& value) {
    (*this)(key, value);
  }
  static bool holds(std::string_view /*key*/, bool written) { return written; }
  /// Moves the finished object out.
  OrderedJson take() { return std::move(json_); }

 private:
  template <typename T>
  static OrderedJson encoded(const T& value) {
    if constexpr (Custom<T>)
      return to_json(value);
    else if constexpr (config::NamedEnum<T>)
      return std::string(config::name_of(value));
    else if constexpr (Visited<T>)
      return write(value);
    else
      return value;
  }
  static OrderedJson encoded(const at::Tensor& value) { return numbers_of(value); }
  template <typename T>
  requires(!Custom<std::vector<T>>) static OrderedJson encoded(const std::vector<T>& values) {
    OrderedJson list = OrderedJson::array();
    for (const auto& value : values) list.push_back(encoded(value));
    return list;
  }
  template <typename T>
  static OrderedJson encoded(const std::map<std::string, T>& values) {
    OrderedJson object = OrderedJson::object();
    for (const auto& [key, value] : values) object[key] = encoded(value);
    return object;
  }

  OrderedJson json_ = OrderedJson::object();
};

/// The `field` argument of visit() while a struct is read. Refers to `view`.
class Reader {
 public:
  explicit Reader(const JsonView& view) : view_(view) {}
  template <typename T>
  void operator()(std::string_view key, T& value) {
    decode(view_.at(key), value);
  }
  template <typename T>
  void operator()(std::string_view key, std::optional<T>& value) {
    if (const auto found = view_.find(key)) decode(*found, value.emplace());
  }
  void operator()(std::string_view key, int64_t& value, int64_t least) { value = view_.at(key).integer(least); }
  template <typename T>
  void optional(std::string_view key, T& value) {
    if (const auto found = view_.find(key)) decode(*found, value);
  }
  bool holds(std::string_view key, bool /*written*/) const { return view_.has(key); }

 private:
  static void decode(const JsonView& view, int64_t& value) { value = view.integer(0); }
  static void decode(const JsonView& view, double& value) { value = view.number(); }
  static void decode(const JsonView& view, bool& value) { value = view.flag(); }
  static void decode(const JsonView& view, std::string& value) { value = view.string(); }
  static void decode(const JsonView& view, at::Tensor& value) { value = tensor_of(view.integers(0)); }
  template <config::NamedEnum E>
  static void decode(const JsonView& view, E& value) {
    for (const auto& entry : names(E{}))
      if (entry.name == view.string()) return void(value = entry.value);
    view.refuse(" is \"", view.string(), "\", which is none of its names");
  }
  template <Visited T>
  static void decode(const JsonView& view, T& value) {
    value = read<T>(view);
  }
  template <Custom T>
  static void decode(const JsonView& view, T& value) {
    from_json(view, value);
  }
  template <typename T>
  requires(!Custom<std::vector<T>>) static void decode(const JsonView& view, std::vector<T>& values) {
    for (const auto& item : view.items()) decode(item, values.emplace_back());
  }
  template <typename T>
  static void decode(const JsonView& view, std::map<std::string, T>& values) {
    for (const auto& member : view.members()) decode(member, values[member.key()]);
  }

  const JsonView& view_;
};

template <Visited T>
OrderedJson write(T value) {
  Writer writer;
  value.visit(writer);
  return writer.take();
}

template <Visited T>
T read(const JsonView& view) {
  T value;
  Reader reader(view.object());
  value.visit(reader);
  return value;
}

}  // namespace evenkeel::record
