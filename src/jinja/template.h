/// \file  Parses and renders chat templates in a subset of Jinja 2, as transformers' apply_chat_template does: in an
/// ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, break and continue, raise_exception, a tojson that
/// keeps non-ASCII characters, and {% generation %}. docs/prompts.md lists the subset. Strings, white space and
/// undefined names follow Python's rules. strftime_now formats a date that the caller sets, not the clock, so that a
/// rendered text is reproducible. Templates are untrusted input: their size, nesting, steps and output are limited.
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

/// A parsed template. Immutable and thread-safe.
class Template {
 public:
  /// Largest size of a template, bytes.
  static constexpr size_t kMostBytes = size_t{1} << 20;

  /// Parses a template. \param origin  prefix of error messages, e.g. the path of the file.
  /// \throws kData "ORIGIN line N: ..." if the source is not Jinja or not in the subset; kData without a line if it is
  /// not UTF-8 or larger than kMostBytes.
  Template(std::string_view source, std::string origin);

  /// Renders the template. Several threads may render the same template at once.
  /// \param variables  pairs of a name and its value. A template may call strftime_now only if a variable of this name
  ///                   is given: Function::date is the moment that it formats.
  /// \return the text, and the byte spans of the {% generation %} blocks in it
  /// \throws kData "ORIGIN line N: ..." for a construct outside the subset, an error in Jinja, a call of
  /// raise_exception, or an exceeded limit.
  Rendered render(const std::vector<std::pair<std::string, Value>>& variables) const;

  /// Returns true if the template contains a {% generation %} block.
  bool marks_generation() const;

 private:
  std::string origin_;
  std::shared_ptr<const Syntax> syntax_;
};

}  // namespace evenkeel::jinja
