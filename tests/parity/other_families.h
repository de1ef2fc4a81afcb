/// \file  Model families that evenkeel does not ship, for tests of the leaves they are built of.
#pragma once

namespace evenkeel {

/// qwen3_moe, qwen2_moe, mixtral and llama join the table.
void add_other_families();

}  // namespace evenkeel
