/// \file  Model families that evenkeel does not ship, for tests of the leaves they are built of.
#pragma once

namespace evenkeel {

/// qwen2_moe and llama join the table.
void add_other_families();

}  // namespace evenkeel
