/// \file  A subset of Jinja 2 for chat templates, rendered as transformers' apply_chat_template does: in an
/// ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, break and continue, raise_exception, a tojson that
/// leaves characters as they are, and {% generation %}. What is read and what is not: docs/prompts.md. Python's rules
/// hold: code points, white space, undefined names. The clock (strftime_now) is a variable, if at all: a text must
/// not depend on the day. A template may be a stranger's: its size, nesting, steps and output are bounded.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/rendered.h"
#include "jinja/value.h"

namespace evenkeel::jinja {

struct Syntax;

/// Immutable; threads may render side by side.
class Template {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 20;

  /// \throws kData "ORIGIN line N: ..." for what is not Jinja or not part of the subset.
  Template(std::string_view source, std::string origin);

  /// \param variables  by name
  /// \throws kData "ORIGIN line N: ..." for a construct outside the subset, for what Jinja would not do either, when
  /// the template calls raise_exception, and when it takes too much.
  Rendered render(const std::vector<std::pair<std::string, Value>>& variables) const;

  bool marks_generation() const;

 private:
  std::string origin_;
  std::shared_ptr<const Syntax> syntax_;
};

}  // namespace evenkeel::jinja
