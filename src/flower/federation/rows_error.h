/// \file  Keeps the values of a node's rows out of what it tells the server. Errors about rows quote them. The node's
/// log has the whole text; the server gets the kind of the error and the place of the row.
#pragma once

#include <span>
#include <string>

#include "base/plain/error.h"

namespace evenkeel::flower {

/// An error of work on the node's own rows. what() is the whole text, for this machine.
class RowsError : public Error {
 public:
  /// \param error  the error
  /// \param files  files of rows. for_server() names the one that `error` names, without its folder
  RowsError(const Error& error, std::span<const std::string> files);
  /// Returns what the server is told, e.g. "[data] a.jsonl:17: this row or file cannot be used; the node's log says
  /// why".
  const std::string& for_server() const { return for_server_; }

 private:
  std::string for_server_;
};

/// Returns what a node tells the server of an error: RowsError::for_server(), or the whole text of other errors. Of an
/// internal error it tells only the kind.
std::string reason_for_server(const Error& error);

}  // namespace evenkeel::flower
