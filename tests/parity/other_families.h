/// \file  Registers model families that evenkeel does not ship, for tests of the building blocks.
#pragma once

namespace evenkeel {

/// Registers dots1.
void add_other_families();

}  // namespace evenkeel
