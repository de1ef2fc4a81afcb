/// \file  What a rendering may take, and the arguments of what it calls. A template comes from strangers.
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

/// Time and memory in one: steps of evaluation, items looked at, and bytes of text made.
class Budget {
 public:
  /// \throws kData when all is spent.
  void charge(size_t steps) {
    spent_ += steps;
    EK_CHECK(spent_ <= kMost, kData, "the template takes more than ", kMost, " steps");
  }
  /// A text that was made.
  Value text(std::string made) {
    charge(made.size() / kBytesPerStep);
    return Value::string(std::move(made));
  }
  /// Before a text of so many bytes is made.
  void charge_bytes(size_t bytes) { charge(bytes / kBytesPerStep); }

  static constexpr size_t kMost = 4'000'000;
  static constexpr size_t kBytesPerStep = 16;  ///< 64 MB of text in all

 private:
  size_t spent_ = 0;
};

/// Of a call. What nobody takes is refused: it would have meant something.
struct Arguments {
  std::vector<Value> placed{};
  std::vector<std::pair<std::string, Value>> named{};
  size_t taken = 0;

  /// The argument at `place` or of that name. To be asked for in order of places.
  std::optional<Value> take(std::string_view name) {
    if (taken < placed.size()) return placed[taken++];
    const auto found = std::find_if(named.begin(), named.end(), [&](const auto& one) { return one.first == name; });
    if (found == named.end()) return std::nullopt;
    auto value = std::move(found->second);
    named.erase(found);
    return value;
  }
  Value need(std::string_view name, std::string_view what) {
    auto value = take(name);
    EK_CHECK(value.has_value(), kData, what, " needs ", name);
    return std::move(*value);
  }
  std::string text(std::string_view name, std::string_view what) { return text_of(need(name, what), name, what); }
  std::optional<int64_t> integer(std::string_view name, std::string_view what) {
    const auto value = take(name);
    if (!value || value->is<None>()) return std::nullopt;
    EK_CHECK(value->is_integer(), kData, what, ": ", name, " is ", value->kind(), ", expected a whole number");
    return value->whole();
  }
  void finish(std::string_view what) const {
    EK_CHECK(taken >= placed.size(), kData, what, " takes ", taken, " arguments here, got ", placed.size());
    EK_CHECK(named.empty(), kData, what, ": the argument ", named.front().first, " is not part of the subset");
  }
  static std::string text_of(const Value& value, std::string_view name, std::string_view what) {
    EK_CHECK(value.is_string(), kData, what, ": ", name, " is ", value.kind(), ", expected a string");
    return value.text();
  }
};

}  // namespace evenkeel::jinja
