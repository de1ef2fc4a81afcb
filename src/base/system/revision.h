/// \file  Holds the commit of the sources that the program was built from.
#pragma once

#include <string>

namespace evenkeel {

/// Returns the commit as 40 hex digits, followed by "-dirty" if tracked files had changed since; empty: the program was
/// built without git, or set_revision() was not called, as in unit tests.
const std::string& revision();
/// Sets what revision() returns. Call it in main(), before threads exist.
void set_revision(std::string commit);

}  // namespace evenkeel
