/// \file  Defines the values of a Jinja template, with Python's comparison and printing. A template cannot change a
/// value other than a namespace, as in Jinja's ImmutableSandboxedEnvironment. A generator only remembers that it was
/// used. Values of one rendering are for one thread.
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

class Budget;
class Value;
struct Node;
class Date;
class Scope;

/// Refers to the scope in which a macro was defined; expires with it. Scopes live on the stack, so the link points to a
/// shared pointer that the scope owns (Scope::link() in jinja/renderer.h).
using ScopeLink = std::weak_ptr<const Scope* const>;
struct Loop;

/// The result of looking up a missing name or key. It prints as an empty string and is false. Looking up a key in an
/// undefined value is an error.
struct Undefined {
  std::string name;  ///< the name or key that was looked up
};
/// Python's None.
struct None {};

/// The Python type of a sequence. A tuple never equals a list.
enum class SequenceType {
  kList,
  kTuple,
  /// Result of map, select and similar filters. It can be iterated once and has no length and no indices.
  kGenerator,
  kView,  ///< a dict's keys(), values() or items(); has no indices
  kRange,
  kGroup  ///< a tuple of groupby; its items are also the attributes `grouper` and `list`
};

/// A sequence of any type.
struct List {
  std::vector<Value> items;
  SequenceType type = SequenceType::kList;
  int depth = 1;              ///< levels of nested lists and dicts, including this one
  mutable bool used = false;  ///< true: a generator that was iterated
};

/// A dict in insertion order. Keys are hashable in Python: strings, numbers, none, and tuples of these. find() and
/// put() are linear in the number of entries.
struct Dict {
  using Entries = std::vector<std::pair<Value, Value>>;
  Entries entries;
  int depth = 1;  ///< levels of nested lists and dicts, including this one; set by Value::dict_of()
  /// Returns the value of a key, or null.
  const Value* find(std::string_view key) const;
  /// Returns the value of a key, or null. As in Python, 1, 1.0 and true are the same key.
  const Value* find(const Value& key, Budget& budget) const;
  /// Sets the value of a key, and keeps the position of an existing key. Does not change `depth`.
  /// \throws kData unless can_be_key(key), and for NaN
  void put(Value key, Value value, Budget& budget);
};

/// A Jinja namespace(): the only mutable value. The renderer owns it.
struct Namespace {
  Dict variables;
};

/// A macro of the template, or a built-in function.
struct Function {
  std::string_view name;
  const Node* macro = nullptr;  ///< null: built-in function
  const Date* date = nullptr;   ///< date that strftime_now formats; null for other functions
  ScopeLink scope{};            ///< of a macro: the scope of its definition
};

using Text = std::shared_ptr<const std::string>;

/// A string returned by the filter `safe`. It prints as a string; combining it with other strings is not supported.
struct SafeText {
  Text text;
};

/// A value of any type. Copies are cheap: lists, dicts and strings are shared.
class Value {
 public:
  using Held = std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, Namespace*, Function, std::shared_ptr<Loop>, SafeText>;
  Value() = default;  ///< undefined
  explicit Value(Held held) : held_(std::move(held)) {}

  /// These functions make a value of the type that they are named after.
  static Value none() { return Value(Held(None{})); }
  static Value undefined(std::string_view name) { return Value(Held(Undefined{std::string(name)})); }
  static Value boolean(bool value) { return Value(Held(value)); }
  static Value integer(int64_t value) { return Value(Held(value)); }
  static Value string(std::string text) { return Value(Held(std::make_shared<const std::string>(std::move(text)))); }
  /// Creates a sequence. \throws kData if values are nested deeper than kDeepest, here and in dict() and dict_of().
  static Value list(std::vector<Value> items, SequenceType type = SequenceType::kList);
  static Value dict(std::vector<std::pair<std::string, Value>> entries);
  static Value dict_of(Dict::Entries entries);

  /// Returns true if the value is stored as T.
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(held_);
  }
  /// Returns the stored value, or null if it is not a T.
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&held_);
  }
  bool is_string() const { return is<Text>(); }
  /// Returns true for a sequence of any type.
  bool is_sequence() const { return is<std::shared_ptr<const List>>(); }
  bool has_type(SequenceType type) const { return is_sequence() && (*as<std::shared_ptr<const List>>())->type == type; }
  bool is_tuple() const { return has_type(SequenceType::kTuple) || has_type(SequenceType::kGroup); }
  /// Returns true for a sequence with indices and a length: a list, a tuple, or a group of groupby.
  bool is_list_or_tuple() const { return has_type(SequenceType::kList) || is_tuple(); }
  bool is_dict() const { return is<std::shared_ptr<const Dict>>(); }
  /// Returns true for an integer or a boolean, as in Python.
  bool is_integer() const { return is<int64_t>() || is<bool>(); }
  bool is_number() const { return is_integer() || is<double>(); }

  /// The following accessors REQUIRE a value of their type.
  const std::string& text() const { return **as<Text>(); }
  const std::vector<Value>& items() const { return (*as<std::shared_ptr<const List>>())->items; }
  const Dict& entries() const { return **as<std::shared_ptr<const Dict>>(); }
  int64_t whole() const { return is<bool>() ? int64_t{*as<bool>()} : *as<int64_t>(); }
  double real() const { return is<double>() ? *as<double>() : static_cast<double>(whole()); }

  /// Returns the value as Python's bool().
  bool truth() const;
  /// Returns the levels of nested lists and dicts; 0 for other values.
  int depth() const;
  /// Returns the type for error messages, e.g. "a string" or "a list".
  std::string_view kind() const;

  static constexpr int kDeepest = 64;

 private:
  Held held_;
};

/// The variable `loop`: the items of a loop and its position (`index`, from 0). `depth` is as in List.
struct Loop {
  std::vector<Value> items;
  size_t index = 0;
  int depth = 1;
  int recursion = 0;             ///< number of enclosing calls of the same loop
  const Node* node = nullptr;    ///< of a recursive loop, while it runs; else null
  const Scope* scope = nullptr;  ///< of a recursive loop: its enclosing scope; borrowed, valid while `node` is set
};

// The functions that take a budget visit the values inside of lists and dicts, a shared value once for each place that
// holds it. They charge each visit, and the text that they compare or write, and throw kData when the budget is
// exhausted.

/// Returns x == y by Python's rules. \throws kData for two generators, ranges or views of dicts.
bool equal(const Value& x, const Value& y, Budget& budget);
/// Returns -1, 0 or 1 if x is less than, equal to or greater than y. The result is exact beyond 2^53. REQUIRES numbers
/// that are not NaN.
int compare_numbers(const Value& x, const Value& y);
/// Returns x < y by Python's rules, for numbers, strings, two lists or two tuples. \throws kData for other types.
bool less(const Value& x, const Value& y, Budget& budget);

/// Returns Python's str(), which a template prints. Text that is not inside of a list or dict is not charged.
/// \throws kData for generators, ranges, views of dicts, namespaces, functions and loops, whose text in Python holds an
/// address or is not part of the subset
std::string printed(const Value& value, Budget& budget);
/// Returns Python's repr(). It also accepts undefined values. \throws kData for the result of the filter `safe`.
std::string representation(const Value& value, Budget& budget);

/// Options of json_text(). The defaults are those of transformers' tojson.
struct JsonForm {
  bool ascii = false;                        ///< true: non-ASCII characters are written as \\uXXXX
  std::optional<std::string> indent{};       ///< white space per level; nothing: one line
  std::string between = ", ", colon = ": ";  ///< separators of items, and of a key and its value
  bool sort_keys = false;
};
/// Returns the value as Python's json.dumps writes it. \throws kData for a value without a JSON form.
std::string json_text(const Value& value, const JsonForm& form, Budget& budget);

/// Returns true if the value can be a key of a Dict: a string, a number, a boolean, none, or a tuple of these. Python
/// can hash more (functions, ranges, undefined values); such keys are not part of the subset.
bool can_be_key(const Value& value, Budget& budget);

}  // namespace evenkeel::jinja
