/// \file  Audits the account of private releases of a run or a node, for `evenkeel privacy --run`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel::apps {

/// What an account says.
struct PrivacyAudit {
  std::string ledger;             ///< the file
  std::vector<std::string> runs;  ///< of the releases, in order
  int64_t releases = 0, rounds = 0;
  double epsilon = 0, order = 0, delta = 0;  ///< of who has spent most
  std::optional<double> budget;              ///< epsilon; nothing: there is none
  /// How many more rounds like the last plan's the budget allows to who has spent most.
  std::optional<int64_t> rounds_left;
};

/// Reads and checks a ledger. It needs no key and changes nothing.
/// \param folder  a run folder, a node's memory folder, or the folder of a ledger
/// \param delta   at which epsilon is computed; nothing: that of the last plan
/// \throws kConfig when there is no ledger; kCheckpoint when its lines were changed or removed
PrivacyAudit audit_privacy(const std::filesystem::path& folder, std::optional<double> delta);

OrderedJson json_of(const PrivacyAudit& audit);
std::string text_of(const PrivacyAudit& audit);

}  // namespace evenkeel::apps
