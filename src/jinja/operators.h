/// \file  Implements Jinja's operators, subscripts, methods, filters and tests with Python's semantics. All functions
/// throw kData for unsupported types, and when the budget is exhausted.
#pragma once

#include <string_view>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace evenkeel::jinja {

/// Returns x op y for + - * / // % ** ~.
Value calculated(std::string_view op, const Value& x, const Value& y, Budget& budget);
/// Returns -x.
Value negative(const Value& x);
/// Returns true if x is in y.
bool contains(const Value& y, const Value& x, Budget& budget);

/// Returns x.name (not for method calls).
Value attribute(const Value& x, std::string_view name);
/// Returns x[key].
Value item(const Value& x, const Value& key, Budget& budget);
/// Returns the value at a path such as "a.b.0" in `x`, as filters look up attributes. A path that is no string is one
/// key; the path none is `x`. \param otherwise  the value of a part that is missing; null: the result is undefined
Value value_at_path(const Value& x, const Value& path, Budget& budget, const Value* otherwise = nullptr);
/// Returns x[begin:end:step]. A bound that is none has Python's default.
Value slice(const Value& x, const Value& begin, const Value& end, const Value& step, Budget& budget);

/// Returns the items that a loop or list() iterates over: items of a sequence, keys of a dict, or characters of a
/// string.
/// \throws kData for other types.
std::vector<Value> iterated(const Value& x, Budget& budget);

/// Returns x.name(arguments) for a string or dict.
Value called_method(const Value& x, std::string_view name, Arguments& arguments, Budget& budget);

/// Returns x | name(arguments).
Value filtered(std::string_view name, const Value& x, Arguments& arguments, Budget& budget);
/// Returns x is name(arguments).
bool tested(std::string_view name, const Value& x, Arguments& arguments, Budget& budget);

}  // namespace evenkeel::jinja
