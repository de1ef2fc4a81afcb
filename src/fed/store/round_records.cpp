#include "fed/store/round_records.h"

namespace evenkeel::fed {

OrderedJson to_json(const Diagnostics& diagnostics) { return diagnostics.lists; }

void from_json(const JsonView& view, Diagnostics& diagnostics) { diagnostics.lists = view.object().json(); }

}  // namespace evenkeel::fed
