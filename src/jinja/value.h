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
class Date;
class Scope;

/// Where a macro was defined, as long as that lasts.
using ScopeLink = std::weak_ptr<const Scope* const>;
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
  kRange,
  kGroup  ///< a tuple of groupby: its parts are also called grouper and list
};

struct List {
  std::vector<Value> items;
  Shape shape = Shape::kList;
  int depth = 1;              ///< lists and dicts within each other, itself included
  mutable bool used = false;  ///< a generator that was gone over
};

/// In the order of insertion. Keys are what Python can hash: texts, numbers, none, and tuples of these.
struct Dict {
  using Entries = std::vector<std::pair<Value, Value>>;
  Entries entries;
  int depth = 1;
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;  ///< 1, 1.0 and true are one key
  void put(Value key, Value value);           ///< in the place of the key that is there
};

/// Owned by the rendering; the one thing that a template changes.
struct Namespace {
  Dict variables;
};

/// A function of the template's own, or one of those that every template has.
struct Function {
  std::string_view name;
  const Node* macro = nullptr;  ///< null: a built-in one
  const Date* date = nullptr;   ///< what strftime_now writes
  ScopeLink scope{};            ///< of a macro: the names that it sees
};

using Text = std::shared_ptr<const std::string>;

/// What `safe` makes of a text: printed as it is; with other texts it would escape them.
struct SafeText {
  Text text;
};

class Value {
 public:
  using Held = std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, Namespace*, Function, std::shared_ptr<Loop>, SafeText>;
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
  static Value dict_of(Dict::Entries entries);

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
  bool is_tuple() const { return has_shape(Shape::kTuple) || has_shape(Shape::kGroup); }
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
  int recursion = 0;           ///< how often it stands in itself
  const Node* node = nullptr;  ///< of a recursive loop, as long as it goes on
  const Scope* scope = nullptr;
};

/// Python's ==.
bool equal(const Value& x, const Value& y);
/// -1, 0, 1 as x is less, equal or greater, exact beyond 2^53. REQUIRES numbers, none of them NaN.
int compare_numbers(const Value& x, const Value& y);
/// Python's <, for numbers, for strings, for two lists and for two tuples. \throws kData for others
bool less(const Value& x, const Value& y);

/// Python's str(): what a template prints. \throws kData for what has no text that means something elsewhere.
std::string printed(const Value& value);
/// Python's repr(), which also has a word for what is undefined.
std::string representation(const Value& value);

/// Of json.dumps, with the defaults of transformers' tojson.
struct JsonForm {
  bool ascii = false;                   ///< other characters as \\uXXXX
  std::optional<std::string> indent{};  ///< white space a level; nothing: one line
  std::string between = ", ", colon = ": ";
  bool sort_keys = false;
};
/// \throws kData for what JSON has no form of.
std::string json_text(const Value& value, const JsonForm& form = {});

/// Whether Python can hash it: what a key of a dict has to be.
bool is_hashable(const Value& value);

}  // namespace evenkeel::jinja
