/// \file  Limits the time and memory of a rendering, and holds the arguments of calls. Templates are untrusted input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "jinja/value.h"

namespace evenkeel::jinja {

/// Counts the steps of a rendering: evaluation steps, items visited, and text produced (kBytesPerStep bytes per step).
class Budget {
 public:
  /// Adds steps. \throws kData if the sum exceeds kMost.
  void charge(size_t steps) {
    spent_ += steps;
    EK_CHECK(spent_ <= kMost, kData, "the template takes more than ", kMost, " steps");
  }
  /// Charges for a text and returns it as a value.
  Value text(std::string made) {
    charge(made.size() / kBytesPerStep);
    return Value::string(std::move(made));
  }
  /// Charges for a text. Call it before the text is allocated.
  void charge_bytes(size_t bytes) { charge(bytes / kBytesPerStep); }

  static constexpr size_t kMost = 4'000'000;   ///< steps per rendering
  static constexpr size_t kBytesPerStep = 16;  ///< 64 MB of text in total

 private:
  size_t spent_ = 0;
};

/// The arguments of a call. finish() rejects arguments that were not taken, so that none is ignored silently.
struct Arguments {
  std::vector<Value> placed{};                         ///< positional arguments
  std::vector<std::pair<std::string, Value>> named{};  ///< keyword arguments
  size_t taken = 0;                                    ///< positional arguments taken so far

  /// Removes and returns the next positional argument, or else the keyword argument `name`, or nothing. Call it in the
  /// order of the parameters.
  std::optional<Value> take(std::string_view name) {
    if (taken < placed.size()) return placed[taken++];
    const auto found = std::find_if(named.begin(), named.end(), [&](const auto& one) { return one.first == name; });
    if (found == named.end()) return std::nullopt;
    auto value = std::move(found->second);
    named.erase(found);
    return value;
  }
  /// Returns take(name). \param what  name of the function, for the message. \throws kData if the argument is missing.
  Value need(std::string_view name, std::string_view what) {
    auto value = take(name);
    EK_CHECK(value.has_value(), kData, what, " needs ", name);
    return std::move(*value);
  }
  /// Returns a required string argument. \throws kData if it is missing or no string.
  std::string text(std::string_view name, std::string_view what) { return text_of(need(name, what), name, what); }
  /// Returns an optional integer argument; nothing if it is missing or none. \throws kData for another type.
  std::optional<int64_t> integer(std::string_view name, std::string_view what) {
    const auto value = take(name);
    if (!value || value->is<None>()) return std::nullopt;
    EK_CHECK(value->is_integer(), kData, what, ": ", name, " is ", value->kind(), ", expected a whole number");
    return value->whole();
  }
  /// Checks that all arguments were taken. \throws kData if arguments are left.
  void finish(std::string_view what) const {
    EK_CHECK(taken >= placed.size(), kData, what, " takes ", taken, " arguments here, got ", placed.size());
    EK_CHECK(named.empty(), kData, what, ": the argument ", named.front().first, " is not part of the subset");
  }
  /// Returns a string value. \throws kData for another type.
  static std::string text_of(const Value& value, std::string_view name, std::string_view what) {
    EK_CHECK(value.is_string(), kData, what, ": ", name, " is ", value.kind(), ", expected a string");
    return value.text();
  }
};

}  // namespace evenkeel::jinja
