/// \file  Counts rows that cannot be used and are left out, because they are not required (Row::is_required), and says
/// why the first of them cannot.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/plain/error.h"

namespace evenkeel::data {

/// Rows of one set that are left out.
class LeftOutRows {
 public:
  /// Counts a row. \param error  names the row and what is wrong with it \throws `error` if the row is required, or if
  /// the error is not of the kind kData
  void add(const Error& error, bool is_required);

  int64_t count() const { return count_; }
  /// Returns the message of the first error, without its kind; empty if no row is left out.
  const std::string& first_fault() const { return first_fault_; }
  /// Returns "3 of 8 rows `cannot_be_used` and are left out; the first: a.jsonl:2: ..."; empty if no row is left out.
  /// \param rows  number of all rows \param cannot_be_used  e.g. "cannot be read"
  std::string note(int64_t rows, std::string_view cannot_be_used) const;

 private:
  int64_t count_ = 0;
  std::string first_fault_;
};

/// Logs a warning once per process, because the same rows are prepared for several clients. Nothing is logged for an
/// empty note. Thread-safe.
/// \param area  e.g. "[data] "
void warn_once(std::string_view area, const std::string& note);

}  // namespace evenkeel::data
