/// \file  Takes nodes through the phases of a masked round (secure/round_messages.h): it carries the messages, decides
/// who is in the roster, and goes on after a restart. Private to FleetFabric.
///
/// A client that is lost before all members hold each other's shares leaves the roster, and a new attempt begins with
/// the rest. The masks of a client that is lost later are recovered from the shares of the others. When fewer clients
/// are left than the threshold, the round begins again, with all its clients, up to twice; then it is given up with the
/// reason. After nodes were asked to take masks off, no other attempt follows: nodes help with one sum per round only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "fed/exchange/fabric.h"
#include "flower/federation/fleet.h"
#include "flower/federation/identities.h"
#include "flower/federation/masked_journal.h"
#include "secure/server_round.h"

namespace evenkeel::flower {

/// Makes the terms of a masked round for a roster: Server::masked_terms(), with the digest of the run's config.
using MaskedTerms =
    std::function<secure::RoundContext(const fed::TrainingRound& training, const methods::RoundView& roster)>;

/// The masked rounds of a run. Threads: one.
class MaskedRounds {
 public:
  /// Borrows the fleet. \param folder  of the journal
  MaskedRounds(Fleet& fleet, std::filesystem::path folder) : fleet_(fleet), journal_(std::move(folder)) {}

  /// Masks the rounds of the run from now on.
  void use(MaskedTerms terms) { terms_ = std::move(terms); }
  bool is_on() const { return static_cast<bool>(terms_); }

  /// Phases 1 to 3: agrees on masks, unless an earlier process did, and trains.
  /// \param missing  clients without an upload
  /// \throws kData when fewer clients than the threshold agree
  void exchange(std::span<const methods::ClientProfile> missing, const fed::Exchange& exchange);
  /// Phases 4 and 5: takes the masks off the sum of `updates`. \throws kData when too few clients help
  fed::UnmaskedSum sum(const methods::RoundView& round, std::span<const methods::ClientUpdate> updates);
  /// Called after an error. \return true if the round is to be begun again
  bool recover();
  /// Forgets attempts at committed rounds.
  void committed(int64_t rounds);

 private:
  /// The answers of one phase.
  struct Phase {
    const char* kind;
    std::function<OrderedJson(secure::Place place)> header;
    std::function<void(secure::Place place, const Envelope& answer)> take;
    std::function<bool()> enough{};  // empty: all are waited for
  };

  void restore(int64_t round);
  void agree(const fed::Exchange& exchange);
  void begin(const methods::RoundView& roster, const fed::TrainingRound& training, int64_t number);
  std::set<int64_t> swap_secrets(const fed::Exchange& exchange);
  void take_keys(secure::ServerRound& round, const fed::Exchange& exchange);
  void take_shares(secure::ServerRound& round, const fed::Exchange& exchange);
  void hand_out_shares(std::set<int64_t>& clients, const fed::Exchange& exchange);
  void train(const std::set<int64_t>& clients, std::span<const methods::ClientProfile> profiles,
             const fed::Exchange& exchange);
  std::set<int64_t> still_asked(std::span<const methods::ClientProfile> missing, const fed::Exchange& exchange) const;
  void close(secure::ServerRound& round);
  void sign(secure::ServerRound& round);
  void unmask(secure::ServerRound& round);
  void ask(const std::set<int64_t>& clients, const Phase& phase, const fed::Exchange& exchange);
  secure::ServerRound server_round() const;
  const secure::RoundContext& context() const { return attempt_.value().context; }
  std::optional<secure::Place> place_of(int64_t client) const;
  std::set<int64_t> clients_of(const secure::Survivors& places) const;
  std::set<int64_t> roster() const;
  void record(const std::string& what) const;
  /// Throws `error` after noting that the round may be begun again.
  [[noreturn]] void fail_round(const Error& error);

  Fleet& fleet_;
  MaskedJournal journal_;
  MaskedTerms terms_{};
  Identities identities_;
  std::function<void(const fed::ClientProgress& progress)> on_progress_{};  // of the round under way
  std::optional<MaskedAttempt> attempt_{};
  bool failed_ = false;  // the last error is one after which the round may be begun again
  int repeats_ = 0;      // of the round
};

}  // namespace evenkeel::flower
