/// \file  Adds the noise of a run with `[privacy] unit = "client"`, and keeps its account (docs/privacy.md). A client's
/// contribution to a round is the difference between its upload and the broadcast as received, clipped to integers of
/// a bounded norm (privacy/noisy_sum.h). The server adds the contributions and discrete Gaussian noise, and divides by
/// a number that was fixed before the round. A lost client adds zero. With secure aggregation, the clients clip and add
/// the noise (fed/exchange/noisy_summand.h), and the server keeps the account alone.
/// Source: McMahan et al. 2018, "Learning differentially private recurrent language models"; Kairouz et al. 2021, "The
/// distributed discrete Gaussian mechanism for federated learning with secure aggregation".
#pragma once

#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "fed/exchange/noisy_summand.h"
#include "fed/round/server.h"
#include "fed/store/round_records.h"
#include "privacy/ledger.h"
#include "privacy/noisy_sum.h"

namespace evenkeel::fed {

/// Thrown when a round that was released before would be released again with other uploads, and the budget does not
/// allow it. The run ends with the state before the round.
class BudgetSpent : public std::exception {
 public:
  explicit BudgetSpent(std::string why) : text_(std::move(why)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// Returns what the sum of a round is divided by: the sum of the weights that are drawn, expected for Poisson sampling.
/// It is known before the round, and losses do not change it. \param drawn  the round with all clients that were drawn
double private_divisor(const Server& server, const methods::RoundView& drawn);

/// Returns the standard deviation of the noise in the number of clients within the clip bound; 0: it does not adapt.
double indicator_noise(const PrivacySection& privacy, double divisor);

/// Removes what a report says of a client's rows.
void withhold(const PrivacySection& privacy, train::LocalReport& report);

/// Noise that is in a sum already, because the clients added it.
struct NoiseOfClients {
  privacy::MemberNoise member;  ///< of each
  int64_t clients = 0;          ///< in the sum
  int64_t honest = 0;           ///< of these, those whose noise is accounted for
};

/// The sum of a round before its noise, or with that of the clients.
struct PrivateSum {
  const methods::RoundView& drawn;  ///< all clients that were drawn
  privacy::Grid grid;
  double clip = 0, divisor = 0;
  /// One value per trained value, then the number of clients within the clip bound minus that of the others, in steps
  /// of privacy::kIndicatorStep where the clients add noise.
  std::span<int64_t> values;
  std::optional<NoiseOfClients> added{};  ///< nothing: the server adds the noise
};

/// Key, account and noise of a run. It holds the lock of the run's folder privacy/. Threads: one.
class ClientPrivacy {
 public:
  /// Opens the ledger of a run, or begins it: with the releases of privacy.continues, and with the noise that the
  /// rounds of the run need. \param run  the run folder \param rounds_done  rounds that are committed
  /// \throws kConfig when the budget does not allow one round; kCheckpoint when ledger or key is missing, or the ledger
  /// was changed
  ClientPrivacy(const Server& server, const std::filesystem::path& run, int64_t rounds_done);

  /// Returns true if the budget allows the round, 0: the first. A round that was released before may be repeated.
  bool allows(int64_t round) const;
  /// Charges the round, and adds the noise to the first values, in place, unless the clients did. When this returns,
  /// the charge is on disk. Equal sums of a round get equal noise and are charged once.
  /// \return the clip bound of the next round
  /// \throws BudgetSpent; kConfig when the noise is too large for integers of 64 bits
  double release(const PrivateSum& sum);
  /// Returns the noise multiplier of each round.
  double noise() const { return plan_.noise; }
  /// Returns what the record of the round says to which noise was added last.
  const ClientPrivacyRecord& record() const { return record_; }
  /// Says who is protected, with the noise, for the beginning of a run.
  std::string summary() const;

 private:
  privacy::Event event() const { return {.noise = plan_.noise, .sampling = plan_.sampling}; }
  privacy::Budget budget() const { return {plan_.epsilon, plan_.delta}; }
  /// Returns who pays for a round; nothing: all clients.
  privacy::MemberAccounts::Members payers(const methods::RoundView& drawn) const;
  void carry(const std::filesystem::path& earlier);
  privacy::Plan new_plan() const;
  /// Adds the noise of the server. \return its variance
  int64_t variance_of(const PrivateSum& sum) const;
  void add_noise(const PrivateSum& sum, int64_t variance) const;
  std::string digest_of(const PrivateSum& sum, int64_t variance) const;
  /// Sets the share of clients within the bound in the record. \return the next clip bound
  double adapted_clip(const PrivateSum& sum);
  void require_committed(int64_t rounds_done) const;
  /// Noise multiplier of the sum of changes, which costs event() together with that of the indicators.
  double noise_of_changes(double divisor) const;
  int64_t indicator_variance(double divisor) const;
  void charge(const PrivateSum& sum, const std::string& digest);
  void fill_record(const PrivateSum& sum, double variance);

  const Server& server_;
  const PrivacySection& options_;
  privacy::Ledger ledger_;
  crypto::Secret key_;
  privacy::Plan plan_;
  ClientPrivacyRecord record_;
};

}  // namespace evenkeel::fed
