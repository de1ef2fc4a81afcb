/// \file  Stores a server's attempt at a masked round, so that a restarted server goes on with it. It holds what nodes
/// sent unencrypted or in boxes that only other nodes open, and in the end the sum. Answers that take masks off are
/// never stored: nodes give them again.
///
///   masked-round.json         the attempt, sealed (base/plain/sealed.h)
///   masked-sum.safetensors    the sum; masked-round.json has its length and SHA-256
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/format/file_seal.h"
#include "secure/round_context.h"
#include "secure/round_messages.h"

namespace evenkeel::flower {

/// What a server keeps of an attempt.
struct MaskedAttempt {
  secure::RoundContext context{};
  std::vector<std::string> identities{};         ///< public keys of the members, in PEM
  std::vector<secure::KeysOfMember> keys{};      ///< of all members; empty before phase 2 is over
  std::vector<secure::SharesOfMember> shares{};  ///< of all members; empty before phase 2 is over
  std::optional<secure::Survivors> survivors{};  ///< set when phase 3 is over
  bool asked = false;                            ///< true: nodes were asked to take masks off
  std::vector<FileSeal> files{};                 ///< of the sum; empty before it is known

  /// Returns true when the members hold each other's shares, so that uploads may be masked.
  bool is_agreed() const { return !shares.empty(); }
};

/// The files of the attempt. Threads: one. \throws kIo from all functions; kCheckpoint naming a damaged file
class MaskedJournal {
 public:
  /// \param folder  made with the first attempt
  explicit MaskedJournal(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Replaces the stored attempt. It is on disk when the call returns.
  void save(const MaskedAttempt& attempt) const;
  std::optional<MaskedAttempt> load() const;  ///< nothing if none is stored
  /// Stores the sum and names it in the attempt.
  void save_sum(MaskedAttempt& attempt, const secure::RingVector& sum) const;
  /// Reads the sum. REQUIRES an attempt that names it
  secure::RingVector sum(const MaskedAttempt& attempt) const;
  /// Removes all files.
  void clear() const;

 private:
  std::filesystem::path page() const { return folder_ / "masked-round.json"; }
  std::filesystem::path sum_file() const { return folder_ / "masked-sum.safetensors"; }

  std::filesystem::path folder_;
};

}  // namespace evenkeel::flower
