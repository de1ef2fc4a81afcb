/// \file  Adds the noise of a run with `[privacy] unit = "client"`, and keeps its privacy account (docs/privacy.md). A
/// client's contribution to a round is the difference between its upload and the broadcast as received, clipped to
/// integers of a bounded norm (privacy/noisy_sum.h). The server adds the contributions and discrete Gaussian noise, and
/// divides by a number that was fixed before the round. A lost client adds zero. With secure aggregation, the clients
/// clip and add the noise (fed/exchange/noisy_summand.h), and the server only keeps the account.
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

/// Returns the divisor of a round's sum: the expected sum of the weights of the drawn clients. It is known before the
/// round, and losses do not change it. \param drawn  the round with all clients that were drawn
double private_divisor(const Server& server, const methods::RoundView& drawn);

/// Returns the expected number of drawn clients, which is known before the round, too.
/// \param drawn  as private_divisor()
double expected_clients(const Server& server, const methods::RoundView& drawn);

/// Returns the standard deviation of the noise in the number of clients within the clip bound; 0 if the bound does not
/// adapt. \param clients  expected_clients()
double indicator_noise(const PrivacySection& privacy, double clients);

/// Clears a report, because it depends on the client's rows. The number of steps stays if privacy.public_sizes is true.
void withhold(const PrivacySection& privacy, train::LocalReport& report);

/// Checks that the account of a run that protects its clients can go on after `rounds_done` rounds. It adds nothing to
/// the account. Other runs have none. \throws kCheckpoint as ClientPrivacy
void check_account(const Server& server, const std::filesystem::path& run, int64_t rounds_done);

/// Noise that is in a sum already, because the clients added it.
struct NoiseOfClients {
  privacy::MemberNoise member;  ///< noise of each client
  int64_t clients = 0;          ///< number of clients in the sum
  int64_t honest = 0;           ///< number of these clients whose noise is accounted for
};

/// The sum of a round before its noise, or with the noise that the clients added.
struct PrivateSum {
  const methods::RoundView& drawn;  ///< all clients that were drawn
  privacy::Grid grid;
  double clip = 0, divisor = 0;  ///< bound of the norm of a change; private_divisor()
  /// One value per trained value. The last value is the number of clients within the clip bound minus the number of the
  /// others, in steps of privacy::kIndicatorStep if the clients add noise.
  std::span<int64_t> values;
  std::optional<NoiseOfClients> added{};  ///< nullopt: the server adds the noise
};

/// Key, privacy account and noise of a run. It holds the lock of the run's folder privacy/. Threads: one.
class ClientPrivacy {
 public:
  /// Opens the ledger of a run. A new ledger begins with the releases of privacy.continues and with the noise that the
  /// rounds of the run need. \param run  the run folder \param rounds_done  rounds that are committed
  /// \throws kConfig when the budget does not allow one round, or privacy.continues has no ledger; kCheckpoint when
  /// ledger or key is missing, or the ledger was changed
  ClientPrivacy(const Server& server, const std::filesystem::path& run, int64_t rounds_done);

  /// Returns true if the budget allows `round` (0: the first). A round that was released before may be repeated.
  bool allows(int64_t round) const;
  /// Charges the round, and adds the noise to sum.values, in place, unless the clients added it. When this returns,
  /// the charge is on disk. Equal sums of a round get equal noise and are charged once.
  /// \return the clip bound of the next round
  /// \throws BudgetSpent; kConfig when the noise is too large for integers of 64 bits
  double release(const PrivateSum& sum);
  /// Returns the noise multiplier of each round.
  double noise() const { return plan_.noise; }
  /// Returns the record of the round that was released last.
  const ClientPrivacyRecord& record() const { return record_; }
  /// Returns a line for the beginning of a run: who is protected, the noise multiplier and what is spent already.
  std::string summary() const;

 private:
  privacy::Event event() const { return {.noise = plan_.noise, .sampling = plan_.sampling}; }
  privacy::Budget budget() const { return {plan_.epsilon, plan_.delta}; }
  /// Returns the ids of the clients whose accounts are charged for a round; nullopt: all clients.
  privacy::MemberAccounts::Members payers(const methods::RoundView& drawn) const;
  void carry(const std::filesystem::path& earlier);
  privacy::Plan new_plan() const;
  /// Adds the noise of the server. \return its variance
  int64_t variance_of(const PrivateSum& sum) const;
  void add_noise(const PrivateSum& sum, int64_t variance) const;
  std::string digest_of(const PrivateSum& sum, int64_t variance) const;
  /// Sets the share of clients within the bound in the record. \return the next clip bound
  double adapted_clip(const PrivateSum& sum);
  /// Noise multiplier of the sum of changes. This sum and the sum of indicators together cost event().
  /// \param clients  expected_clients()
  double noise_of_changes(double clients) const;
  int64_t indicator_variance(double clients) const;
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
