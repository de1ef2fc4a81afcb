/// \file  Reads one row of a user's file, in any format (data/row_files.h).
#pragma once

#include "base/plain/json.h"
#include "data/conversations.h"
#include "data/row_files.h"

namespace evenkeel::data {

/// Returns the format that the keys of a row have. \throws kData naming the keys if no format has them
RowFormat format_of(const JsonView& row);

/// Reads rows. Thread-safe.
class RowReader {
 public:
  /// \param what  must outlive the reader; `patterns`, `format` and `ignore` are not used
  explicit RowReader(const FileRows& what) : what_(what) {}

  /// Reads a row. The table of data/row_keys.h says what each key does.
  /// \param format  not kAuto
  /// \throws kData for a row that cannot be read, or that would lose a value; kConfig for a conversation of several
  /// answers if FileRows::conversations is false. Both name place and key.
  Row read(const SourceRow& source, RowFormat format) const;
  /// Reads the messages of a row for a chat template, whoever speaks last. \param format  kMessages, kShareGpt, or
  /// kPromptCompletion with lists of messages \throws kData as read()
  Row read_conversation(const SourceRow& source, RowFormat format) const;

 private:
  const FileRows& what_;
};

}  // namespace evenkeel::data
