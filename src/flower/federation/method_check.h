/// \file  Checks that server and node have the same method in Python. Each side names a file of its own (--method), and
/// the server sends no code.
#pragma once

#include "flower/federation/agreement.h"
#include "methods/method_registry.h"

namespace evenkeel::flower {

/// Checks that this node's method of the offered name has the server's source and description. A method that the node
/// does not know passes: reading the offered config refuses it. Call it before the config is read, because another
/// source may have other keys.
/// \throws kConfig in one line with both sides and both digests
void require_same_method(const methods::MethodDigests& server);

/// Checks that the method of the offered config is the one whose digests the server sent. A compiled method has none.
/// \throws kConfig when only one side has a class in Python
void require_same_kind(const methods::MethodDigests& server, const methods::MethodEntry& entry);

}  // namespace evenkeel::flower
