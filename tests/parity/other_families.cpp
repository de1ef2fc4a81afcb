// Defines a family that evenkeel does not ship: dots1, generated from docs/tutorial-new-family.md.
#include "other_families.h"

#include "models/decoder.h"

namespace evenkeel::models {
ModelEntry dots1();  // from the tutorial
}

namespace evenkeel {

void add_other_families() { models::add_family(models::dots1()); }

}  // namespace evenkeel
