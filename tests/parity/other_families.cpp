// Defines a family that evenkeel does not ship: Qwen2-MoE, generated from docs/tutorial-new-family.md.
#include "other_families.h"

#include "models/decoder.h"

namespace evenkeel::models {
ModelEntry qwen2_moe();  // from the tutorial
}

namespace evenkeel {

void add_other_families() { models::add_family(models::qwen2_moe()); }

}  // namespace evenkeel
