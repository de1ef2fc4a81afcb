/// \file  Defines the rules by which nodes become the clients of a run. The keys of `[clients]` that have these types
/// matter to `evenkeel serve` only.
#pragma once

#include <array>

#include "base/format/config_values.h"

namespace evenkeel::fed {

/// Selects which nodes a client with a name and without a key takes.
enum class Placement {
  kNamed,    ///< the node that has the client's name in the server's list of keys; other nodes are refused
  kArrival,  ///< that node or, if the list has no such name, the next node that comes; this is warned of and recorded
};
constexpr auto names(Placement) {
  return std::array{config::EnumName<Placement>{"named", Placement::kNamed},
                    config::EnumName<Placement>{"arrival", Placement::kArrival}};
}

/// Selects what happens to a node that returns with other rows, another base or another tokenizer.
enum class OnChange {
  kRefuse,  ///< its client is lost until the node has what it joined with
  kRecord,  ///< it goes on; the change is warned of and recorded
};
constexpr auto names(OnChange) {
  return std::array{config::EnumName<OnChange>{"refuse", OnChange::kRefuse},
                    config::EnumName<OnChange>{"record", OnChange::kRecord}};
}

}  // namespace evenkeel::fed
