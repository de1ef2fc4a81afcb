/// \file  The values of a Jinja template, as Python has them: how they compare, and how they are written.
/// Immutable but for namespaces, as in Jinja's ImmutableSandboxedEnvironment.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace evenkeel::jinja {

class Value;
struct Node;
struct Loop;

/// What a name or key that is not there gives: nothing when printed, false when asked, an error when looked into.
struct Undefined {
  std::string name;  ///< what was looked for
};
struct None {};

/// Which of Python's types a row of items is. A tuple is never equal to a list.
enum class Shape {
  kList,
  kTuple,
  kGenerator,  ///< what map, select and their like give: gone over once, without length or places
  kView,       ///< a dict's keys(), values() and items(): without places
  kRange
};

struct List {
  std::vector<Value> items;
  Shape shape = Shape::kList;
  int depth = 1;              ///< lists and dicts within each other, itself included
  mutable bool used = false;  ///< a generator that was gone over
};

/// In the order of insertion.
struct Dict {
  std::vector<std::pair<std::string, Value>> entries;
  int depth = 1;
  const Value* find(std::string_view key) const;
};

/// Owned by the rendering; the one thing that a template changes.
struct Namespace {
  Dict variables;
};

/// A function of the template's own, or one of those that every template has.
struct Function {
  std::string_view name;
  const Node* macro = nullptr;  ///< null: a built-in one
};

using Text = std::shared_ptr<const std::string>;

class Value {
 public:
  using Held = std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, Namespace*, Function, std::shared_ptr<Loop>>;
  Value() = default;  ///< undefined
  explicit Value(Held held) : held_(std::move(held)) {}

  static Value none() { return Value(Held(None{})); }
  static Value undefined(std::string_view name) { return Value(Held(Undefined{std::string(name)})); }
  static Value boolean(bool value) { return Value(Held(value)); }
  static Value integer(int64_t value) { return Value(Held(value)); }
  static Value string(std::string text) { return Value(Held(std::make_shared<const std::string>(std::move(text)))); }
  /// \throws kData when they are nested deeper than kDeepest.
  static Value list(std::vector<Value> items, Shape shape = Shape::kList);
  static Value dict(std::vector<std::pair<std::string, Value>> entries);

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(held_);
  }
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&held_);
  }
  bool is_string() const { return is<Text>(); }
  bool is_series() const { return is<std::shared_ptr<const List>>(); }  ///< of any shape
  bool has_shape(Shape shape) const { return is_series() && (*as<std::shared_ptr<const List>>())->shape == shape; }
  bool is_tuple() const { return has_shape(Shape::kTuple); }
  bool is_list() const { return has_shape(Shape::kList) || is_tuple(); }
  bool is_dict() const { return is<std::shared_ptr<const Dict>>(); }
  bool is_integer() const { return is<int64_t>() || is<bool>(); }  ///< as in Python
  bool is_number() const { return is_integer() || is<double>(); }

  /// REQUIRES it is one.
  const std::string& text() const { return **as<Text>(); }
  const std::vector<Value>& items() const { return (*as<std::shared_ptr<const List>>())->items; }
  const Dict& entries() const { return **as<std::shared_ptr<const Dict>>(); }
  int64_t whole() const { return is<bool>() ? int64_t{*as<bool>()} : *as<int64_t>(); }
  double real() const { return is<double>() ? *as<double>() : static_cast<double>(whole()); }

  bool truth() const;
  int depth() const;
  std::string_view kind() const;  ///< for messages: "a string", "a list"

  static constexpr int kDeepest = 64;

 private:
  Held held_;
};

/// A `loop`: the items, and where it stands.
struct Loop {
  std::vector<Value> items;
  size_t index = 0;
  int depth = 1;
};

/// Python's ==.
bool equal(const Value& x, const Value& y);
/// Python's <, for numbers, for strings, for two lists and for two tuples. \throws kData for others
bool less(const Value& x, const Value& y);

/// Python's str(): what a template prints. \throws kData for what has no text that means something elsewhere.
std::string printed(const Value& value);
/// Python's json.dumps(ensure_ascii=False), as transformers' tojson. \param indent  spaces a level; nothing: one line
std::string json_text(const Value& value, std::optional<int64_t> indent = std::nullopt, bool sort_keys = false);

}  // namespace evenkeel::jinja
