/// \file  Defines the rules by which nodes become the clients of a run. The keys of `[clients]` that have these types
/// matter to `evenkeel serve` only.
#pragma once

#include <array>

#include "base/format/config_values.h"

namespace evenkeel::fed {

/// Selects which nodes may become a client that has a name and no key.
enum class Placement {
  kNamed,    ///< the node that has the client's name in the server's list of keys; other nodes are refused
  kArrival,  ///< that node or, if the list has no such name, the next node that comes, with a warning and a record
};
constexpr auto names(Placement) {
  return std::array{config::EnumName<Placement>{"named", Placement::kNamed},
                    config::EnumName<Placement>{"arrival", Placement::kArrival}};
}

/// Selects what happens to a node that returns with other rows, another base or another tokenizer.
enum class OnChange {
  kRefuse,  ///< its client is lost until the node again has the rows, base and tokenizer that it joined with
  kRecord,  ///< the node goes on, with a warning and a record
};
constexpr auto names(OnChange) {
  return std::array{config::EnumName<OnChange>{"refuse", OnChange::kRefuse},
                    config::EnumName<OnChange>{"record", OnChange::kRecord}};
}

}  // namespace evenkeel::fed
