/// \file  Keeps the account of private releases on disk, with the key of their noise. Files in one folder:
///
///   privacy.jsonl      one chained line (base/plain/chained_lines.h) per plan and per release, flushed when written
///   privacy.head.json  number and digest of the last line, so that lines missing at the end are noticed
///   privacy.key        32 secret bytes, mode 0600. Nothing else holds them
///
/// Lines are never changed or removed, even when a run repeats a round. An edited or shortened ledger is refused.
/// Deleting the folder deletes the account.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/plain/json.h"
#include "base/system/folder_lock.h"
#include "crypto/secret.h"
#include "privacy/member_accounts.h"

namespace evenkeel::privacy {

/// The privacy settings agreed for one run. The last plan of a run applies.
struct Plan {
  std::string run;
  double epsilon = 0, delta = 0;   ///< the budget of all runs together
  double clip = 0;                 ///< largest norm of one member's term
  double sampling = 1, noise = 1;  ///< as in Event: sampling probability, noise multiplier

  void visit(auto& field) {  // base/format/record.h
    field("run", run);
    field("epsilon", epsilon);
    field("delta", delta);
    field("clip", clip);
    field("sampling", sampling);
    field("noise", noise);
  }
};

/// Releases that were made together, such as the steps of a round.
struct Release {
  std::string run;
  int64_t round = 0;               ///< 1 is the first round
  double noise = 1, sampling = 1;  ///< as in Event
  int64_t times = 1;               ///< as in Releases
  double clip = 0;                 ///< as in Plan
  std::optional<std::vector<int64_t>>
      members{};                             ///< ids of the members (privacy/event.h) that are charged; absent: all
  std::string digest;                        ///< of everything that the released values depend on, except the key
  double epsilon = 0, order = 0, delta = 0;  ///< of all releases up to this one

  void visit(auto& field) {
    field("run", run);
    field("round", round);
    field("noise", noise);
    field("sampling", sampling);
    field("times", times);
    field("clip", clip);
    field("members", members);
    field("digest", digest);
    field("epsilon", epsilon);
    field("order", order);
    field("delta", delta);
  }
};

/// An open ledger. It holds the lock of its folder. Not thread-safe.
class Ledger {
 public:
  static constexpr const char* kFile = "privacy.jsonl";

  /// Opens the ledger of a folder, or makes a new one with a new key. \throws kCheckpoint when lines were changed or
  /// removed, or when the key of a used ledger is missing or wrong; kConfig when others may read the key; kIo
  explicit Ledger(const std::filesystem::path& folder);

  /// Returns true if a folder has a ledger.
  static bool exists(const std::filesystem::path& folder);
  /// Reads the releases of a ledger. The folder is not changed and needs no lock. \throws as the constructor
  static std::vector<Release> releases(const std::filesystem::path& folder);
  /// Reads the plans of a ledger, as releases().
  static std::vector<Plan> plans(const std::filesystem::path& folder);

  const crypto::Secret& key() const { return key_; }
  /// Returns the account of releases of all members.
  const Accountant& account() const { return accounts_.of_all(); }
  const MemberAccounts& accounts() const { return accounts_; }
  /// Returns true if releases with this digest are in the account: the same values may be released again at no cost.
  bool holds(const std::string& digest) const { return digests_.contains(digest); }
  /// Returns true if there are releases of a round (1: the first) of a run.
  bool holds(const std::string& run, int64_t round) const { return rounds_.contains({run, round}); }
  /// Returns the plan of a run, if it has one.
  std::optional<Plan> plan_of(const std::string& run) const;

  /// Adds a plan. \throws kIo
  void add(const Plan& plan);
  /// Adds a release and stores the epsilon spent after it, at `delta`. When this returns, the line is on disk, so the
  /// release may leave. \throws kIo
  void add(Release release, double delta);

 private:
  std::filesystem::path folder_;
  std::optional<FolderLock> lock_;
  crypto::Secret key_;
  MemberAccounts accounts_;
  std::set<std::string> digests_;
  std::set<std::pair<std::string, int64_t>> rounds_;
  std::vector<Plan> plans_;
  int64_t lines_ = 0;

  void append(const char* kind, const OrderedJson& fields);
  void enter(const Release& release);
};

}  // namespace evenkeel::privacy
