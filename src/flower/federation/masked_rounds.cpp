#include "flower/federation/masked_rounds.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "base/plain/base64.h"
#include "base/plain/log.h"
#include "fed/config/sampling.h"
#include "fed/exchange/summed_upload.h"
#include "flower/federation/mask_messages.h"
#include "flower/federation/sessions.h"

namespace evenkeel::flower {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMostRepeats = 2;
/// How long answers are awaited after there are enough: those that come more show which are wrong.
constexpr auto kGrace = std::chrono::seconds(1);

/// Returns a function that is true a while after `enough` was first.
std::function<bool()> a_while_after(std::function<bool()> enough) {
  return [enough = std::move(enough), since = std::optional<Clock::time_point>()]() mutable {
    if (!enough()) return false;
    if (!since) since = Clock::now();
    return Clock::now() - *since > kGrace;
  };
}

/// Returns an exchange with the callbacks of another one that a phase needs.
fed::Exchange of_phase(const fed::Exchange& exchange) {
  return {.task_of = {},
          .on_reply = {},
          .on_progress = exchange.on_progress,
          .on_lost = exchange.on_lost,
          .training = exchange.training};
}

/// Returns an exchange for phases whose losses do no harm.
fed::Exchange of_late_phase(const std::function<void(const fed::ClientProgress& progress)>& on_progress) {
  fed::Exchange phase;
  phase.on_progress = on_progress;
  phase.on_lost = [](int64_t client, const std::string& why) {
    log::warning("[serve] client ", client, " does not help to take the masks off: ", why);
  };
  return phase;
}

}  // namespace

std::optional<secure::Place> MaskedRounds::place_of(int64_t client) const {
  const auto& members = context().roster;
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const auto& one) { return one.client == client; });
  return found == members.end() ? std::nullopt : std::optional(static_cast<secure::Place>(found - members.begin()));
}

std::set<int64_t> MaskedRounds::roster() const {
  std::set<int64_t> clients;
  for (const auto& member : context().roster) clients.insert(member.client);
  return clients;
}

std::set<int64_t> MaskedRounds::clients_of(const secure::Survivors& places) const {
  std::set<int64_t> clients;
  for (size_t place = 0; place < places.size(); ++place)
    if (places[place]) clients.insert(context().roster.at(place).client);
  return clients;
}

void MaskedRounds::record(const std::string& what) const {
  const auto text = concat("attempt ", context().attempt, ", ", context().members(), " members, threshold ",
                           context().threshold, ": ", what);
  fleet_.record({.kind = fed::AuditKind::kMasked, .name = "server", .round = context().round + 1, .outcome = text});
  log::info("[serve] round ", context().round + 1, ": masks, ", text);
}

void MaskedRounds::fail_round(const Error& error) {
  failed_ = true;
  throw error;
}

bool MaskedRounds::recover() { return std::exchange(failed_, false) && repeats_++ < kMostRepeats; }

void MaskedRounds::committed(int64_t rounds) {
  repeats_ = 0;
  if (!is_on()) return;
  if (!attempt_) attempt_ = journal_.load();
  if (!attempt_ || context().round >= rounds) return;
  attempt_.reset();
  journal_.clear();
}

/// Reads the attempt of an earlier process.
void MaskedRounds::restore(int64_t round) {
  if (!attempt_) attempt_ = journal_.load();
  if (attempt_ && (context().round != round || context().run != fleet_.roster.run())) attempt_.reset();
  if (attempt_)
    for (const auto& pem : attempt_->identities) identities_.add(pem);
}

void MaskedRounds::exchange(std::span<const methods::ClientProfile> missing, const fed::Exchange& exchange) {
  const auto& round = exchange.training.value().round;
  restore(round.round);
  on_progress_ = exchange.on_progress;
  if (attempt_ && attempt_->is_agreed()) {
    auto clients = still_asked(missing, exchange);
    hand_out_shares(clients, exchange);
    return train(clients, round.participants, exchange);
  }
  agree(exchange);
  auto clients = roster();
  hand_out_shares(clients, exchange);
  train(clients, round.participants, exchange);
}

/// Returns the clients without an upload that may still send one; the others are lost.
std::set<int64_t> MaskedRounds::still_asked(std::span<const methods::ClientProfile> missing,
                                            const fed::Exchange& exchange) const {
  std::set<int64_t> clients;
  for (const auto& client : missing) {
    const auto place = place_of(client.id);
    const auto& survivors = attempt_->survivors;
    if (!place)
      exchange.on_lost(client.id, "it has no masks in this round");
    else if (survivors && !(*survivors)[static_cast<size_t>(*place)])
      exchange.on_lost(client.id, "its masks were recovered from the others, because its upload had not arrived");
    else
      clients.insert(client.id);
  }
  return clients;
}

/// Phases 1 and 2, with a smaller roster after each loss.
void MaskedRounds::agree(const fed::Exchange& exchange) {
  const auto& training = exchange.training.value();
  auto roster = training.round;
  exchange.discard();  // before the new attempt is stored: uploads of another one are under other masks
  for (int64_t number = attempt_ ? context().attempt + 1 : 0;; ++number) {
    begin(roster, training, number);
    const auto lost = swap_secrets(exchange);
    if (lost.empty()) break;
    record(concat("clients ", join(lost), " are lost before the masks"));
    const std::vector<int64_t> ids(lost.begin(), lost.end());
    if (ids.size() == roster.participants.size())
      fail_round(Error(kData, concat("round ", training.round.round + 1, ": no client agrees on masks")));
    roster = fed::without(std::move(roster), ids);
  }
  record("all have keys and shares");
}

void MaskedRounds::begin(const methods::RoundView& roster, const fed::TrainingRound& training, int64_t number) {
  identities_ = {};
  MaskedAttempt attempt{.context = terms_(training, roster)};
  attempt.context.run = fleet_.roster.run();
  attempt.context.attempt = number;
  for (auto& member : attempt.context.roster) member.fingerprint = fleet_.roster.members().at(member.client).key;
  attempt_ = std::move(attempt);
  if (context().threshold > context().members())
    fail_round(Error(kData, concat("round ", context().round + 1, ": ", context().members(),
                                   " clients are left to mask their uploads, secure_aggregation.threshold is ",
                                   context().threshold)));
  journal_.save(*attempt_);
}

std::set<int64_t> MaskedRounds::swap_secrets(const fed::Exchange& exchange) {
  std::set<int64_t> lost;
  auto phase = of_phase(exchange);
  phase.on_lost = [&](int64_t client, const std::string& why) {
    lost.insert(client);
    exchange.on_lost(client, why);
  };
  secure::ServerRound round(context());
  take_keys(round, phase);
  if (lost.empty()) take_shares(round, phase);
  return lost;
}

void MaskedRounds::take_keys(secure::ServerRound& round, const fed::Exchange& exchange) {
  const auto take = [&](secure::Place place, const Envelope& answer) {
    const MaskHeader header(answer, {"keys", "identity"});
    const auto keys = header.read<secure::KeysOfMember>("keys");
    EK_CHECK(keys.place == place, kData, "it sends keys of another place");
    identities_.add(header.at("identity").string());
    round.take_keys(keys, identities_.verifier());
  };
  ask(roster(),
      {.kind = kMaskKeysEnvelope,
       .header =
           [&](secure::Place) {
             return OrderedJson{{"context", secure::to_json(context())}};
           },
       .take = take},
      exchange);
}

void MaskedRounds::take_shares(secure::ServerRound& round, const fed::Exchange& exchange) {
  auto& attempt = attempt_.value();
  const auto keys = round.all_keys();
  std::map<secure::Place, secure::SharesOfMember> all;
  const OrderedJson header{
      {"attempt", name_of(context())}, {"keys", to_json(keys)}, {"identities", identities_.pems()}};
  const auto take = [&](secure::Place place, const Envelope& answer) {
    auto shares = MaskHeader(answer, {"shares"}).read<secure::SharesOfMember>("shares");
    EK_CHECK(shares.place == place, kData, "it sends shares of another place");
    round.take_shares(shares);
    all.insert_or_assign(place, std::move(shares));
  };
  ask(roster(), {.kind = kMaskRosterEnvelope, .header = [&](secure::Place) { return header; }, .take = take}, exchange);
  if (!round.has_all_shares()) return;
  attempt.identities = identities_.pems();
  attempt.keys = keys;
  for (auto& [place, shares] : all) attempt.shares.push_back(std::move(shares));
  journal_.save(attempt);
}

/// Gives the clients the boxes of the others. Whoever does not take them is lost.
void MaskedRounds::hand_out_shares(std::set<int64_t>& clients, const fed::Exchange& exchange) {
  if (clients.empty()) return;
  const auto round = server_round();
  auto phase = of_phase(exchange);
  auto taken = std::set<int64_t>();
  ask(clients,
      {.kind = kMaskSharesEnvelope,
       .header =
           [&](secure::Place place) {
             return OrderedJson{{"attempt", name_of(context())}, {"inbox", secure::to_json(round.inbox_of(place))}};
           },
       .take =
           [&](secure::Place place, const Envelope& answer) {
             const MaskHeader header(answer, {});
             taken.insert(context().roster[static_cast<size_t>(place)].client);
           }},
      phase);
  clients = std::move(taken);
}

void MaskedRounds::train(const std::set<int64_t>& clients, std::span<const methods::ClientProfile> profiles,
                         const fed::Exchange& exchange) {
  auto masked = exchange;
  std::vector<int64_t> ids;
  for (const auto& member : context().roster) ids.push_back(member.client);
  masked.task_of = [&](const methods::ClientProfile& client) {
    auto task = exchange.task_of(client);
    const auto& member = context().roster[static_cast<size_t>(place_of(client.id).value())];
    std::get<fed::Train>(task.ask).summed = fed::SummedTerms{.weight = member.weight,
                                                             .roster = ids,
                                                             .bits = context().bits,
                                                             .exponent = context().exponent,
                                                             .range = context().range,
                                                             .noise = noise_in(context())};
    return task;
  };
  Sessions sessions(fleet_, masked);
  for (const auto& client : profiles)
    if (clients.contains(client.id)) sessions.begin(client);
  sessions.run();
}

void MaskedRounds::ask(const std::set<int64_t>& clients, const Phase& phase, const fed::Exchange& exchange) {
  Sessions sessions(fleet_, exchange);
  for (const int64_t client : clients) {
    const auto place = place_of(client).value();
    sessions.ask({.id = client, .trains = true},
                 {.run = fleet_.roster.run(), .kind = phase.kind, .header = phase.header(place).dump()},
                 [&phase, place](const Envelope& answer) { phase.take(place, answer); });
  }
  sessions.run(phase.enough);
}

/// Returns the server's half of the attempt with keys and shares.
secure::ServerRound MaskedRounds::server_round() const {
  secure::ServerRound round(context());
  for (const auto& keys : attempt_->keys) round.take_keys(keys, identities_.verifier());
  for (const auto& shares : attempt_->shares) round.take_shares(shares);
  return round;
}

fed::UnmaskedSum MaskedRounds::sum(const methods::RoundView& round, std::span<const methods::ClientUpdate> updates) {
  EK_CHECK(attempt_ && context().round == round.round, kInternal, "no masks of round ", round.round + 1);
  std::vector<int64_t> ids;
  for (const auto& member : context().roster) ids.push_back(member.client);
  if (!attempt_->files.empty()) return {std::move(ids), journal_.sum(*attempt_), context().format()};
  auto server = server_round();
  for (const auto& update : updates)
    server.take_upload(place_of(update.client.id).value(),
                       {update.extra(fed::kSummedValues), update.extra(fed::kSummedCounts)});
  close(server);
  sign(server);
  unmask(server);
  auto sum = server.sum();
  journal_.save_sum(*attempt_, sum);
  for (const auto place : server.wrong())
    log::warning("[serve] client ", context().roster[static_cast<size_t>(place)].client, " sent a wrong share");
  record(concat("the sum of ", secure::count_of(*attempt_->survivors), " uploads is unmasked"));
  return {std::move(ids), std::move(sum), context().format()};
}

/// Ends phase 3: what arrives later is thrown away.
void MaskedRounds::close(secure::ServerRound& round) try {
  const auto& survivors = round.close();
  auto& attempt = attempt_.value();
  EK_CHECK(!attempt.asked || *attempt.survivors == survivors, kData, "round ", context().round + 1,
           ": nodes were asked to take the masks off the sum of ", secure::count_of(*attempt.survivors),
           " uploads, of which ", secure::count_of(survivors), " are there");
  if (attempt.survivors == survivors) return;
  attempt.survivors = survivors;
  journal_.save(attempt);
} catch (const Error& error) {
  if (attempt_->asked) throw;
  attempt_->shares.clear();  // the next attempt has other keys
  fail_round(error);
}

void MaskedRounds::sign(secure::ServerRound& round) {
  const auto& survivors = attempt_->survivors.value();
  const OrderedJson header{{"set", secure::to_json(secure::SummedSet{secure::digest_of(context()), survivors})}};
  ask(clients_of(survivors),
      {.kind = kMaskSurvivorsEnvelope,
       .header = [&](secure::Place) { return header; },
       .take =
           [&](secure::Place place, const Envelope& answer) {
             round.take_signature(place, MaskHeader(answer, {"signature"}).bytes("signature"), identities_.verifier());
           },
       .enough = a_while_after([&] { return round.has_enough_signatures(); })},
      of_late_phase(on_progress_));
  if (round.has_enough_signatures()) return;
  if (!attempt_->asked) attempt_->shares.clear();
  fail_round(Error(kData, concat("round ", context().round + 1, ": fewer clients than secure_aggregation.threshold = ",
                                 context().threshold, " sign the set of uploads that arrived")));
}

void MaskedRounds::unmask(secure::ServerRound& round) {
  attempt_->asked = true;
  journal_.save(*attempt_);
  const OrderedJson header{{"attempt", name_of(context())},
                           {"request", secure::to_json(round.unmask_request())},
                           {"identities", identities_.pems()}};
  ask(clients_of(*attempt_->survivors),
      {.kind = kUnmaskEnvelope,
       .header = [&](secure::Place) { return header; },
       .take =
           [&](secure::Place place, const Envelope& answer) {
             round.take_unmask(place, MaskHeader(answer, {"reply"}).read<secure::UnmaskReply>("reply"));
           },
       .enough = a_while_after([&] { return round.has_enough_shares(); })},
      of_late_phase(on_progress_));
  if (!round.has_enough_shares())
    fail_round(Error(kData, concat("round ", context().round + 1,
                                   ": fewer clients than secure_aggregation.threshold = ", context().threshold,
                                   " help to take the masks off")));
}

}  // namespace evenkeel::flower
