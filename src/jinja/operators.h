/// \file  What Jinja's operators, subscripts, methods, filters and tests do, as in Python.
#pragma once

#include <string_view>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace evenkeel::jinja {

/// + - * / // % ** ~
Value calculated(std::string_view op, const Value& x, const Value& y, Budget& budget);
Value negative(const Value& x);
/// x in y
bool contains(const Value& y, const Value& x, Budget& budget);

/// x.name, where it is not called / x[key] / x[begin:end:step], where none is Python's default
Value attribute(const Value& x, std::string_view name);
Value item(const Value& x, const Value& key, Budget& budget);
Value slice(const Value& x, const Value& begin, const Value& end, const Value& step, Budget& budget);

/// What a loop or list() goes over: items, keys, characters. \throws kData for what has none
std::vector<Value> iterated(const Value& x, Budget& budget);

/// x.name(arguments), of strings and dicts.
Value called_method(const Value& x, std::string_view name, Arguments& arguments, Budget& budget);

/// x | name(arguments)
Value filtered(std::string_view name, const Value& x, Arguments& arguments, Budget& budget);
/// x is name(arguments)
bool tested(std::string_view name, const Value& x, Arguments& arguments, Budget& budget);

}  // namespace evenkeel::jinja
