/// \file  Structs as JSON objects and back. A struct names its fields once, in visit(), and is written and read by it:
///
///   struct Upload {
///     int64_t steps = 0;
///     std::map<std::string, double> metrics;
///     void visit(auto& field) {
///       field("steps", steps);
///       field("metrics", metrics);
///     }
///   };
///   const auto json = record::write(upload);
///   const auto again = record::read<Upload>(JsonView(json, "here"));
///
/// Fields are int64_t (0 or more, if no other bound is given), double, bool, std::string, enums with names()
/// (base/format/config_table.h), [N] int64 tensors, structs like this one, and lists, maps by name and optionals of
/// these. An optional that is empty has no key. A type of another form brings to_json(value) and from_json(view,
/// value).
///
/// What has not always been written is field.optional("key", value): where the key is missing, the value stays as it
/// is. Fields that stand together or not at all follow a question: `if (field.holds("layers", use.has_value()))` is
/// true when the object that is read has that key, or when the writer says so.
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

/// [N] int64.
std::vector<int64_t> numbers_of(const at::Tensor& tensor_N);
at::Tensor tensor_of(const std::vector<int64_t>& numbers);

class Writer;
class Reader;

template <typename T>
concept Visited = requires(T& value, Writer& writer) {
  value.visit(writer);
};

template <typename T>
concept Custom = requires(const T& value, T& place, const JsonView& view) {
  { to_json(value) } -> std::same_as<OrderedJson>;
  from_json(view, place);
};

/// The object that `value.visit()` lists, keys in that order.
template <Visited T>
OrderedJson write(T value);

/// \throws naming the place of what is missing, of another type or out of range. A key that visit() does not name is
/// left alone.
template <Visited T>
T read(const JsonView& view);

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
