/// \file  Nodes and a server of masked rounds in one process, for tests. Signatures are digests of a secret per key.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/plain/error.h"
#include "base/testing.h"
#include "crypto/testing.h"
#include "secure/node_round.h"
#include "secure/server_round.h"

namespace evenkeel::testing {

inline std::string key_of(int64_t client) { return concat("SHA256:key", client); }
inline std::string signature_by(const std::string& key, std::string_view text) {
  return hex(sha256_of(concat("signature of ", key, " of ", text)));
}
inline secure::Sign signer_of(int64_t client) {
  return [client](std::string_view text) { return signature_by(key_of(client), text); };
}
inline bool verified(const std::string& key, std::string_view text, std::string_view signature) {
  return signature == signature_by(key, text);
}

/// A list of rounds in memory.
class ListedRounds : public secure::SummedRounds {
 public:
  std::optional<secure::SummedSet> find(const std::string& run, int64_t round) const override {
    const auto found = sets_.find({run, round});
    return found == sets_.end() ? std::nullopt : std::optional(found->second);
  }
  void store(const std::string& run, int64_t round, const secure::SummedSet& set) override {
    sets_[{run, round}] = set;
  }

 private:
  std::map<std::pair<std::string, int64_t>, secure::SummedSet> sets_;
};

/// The terms of a round of clients with these ids, of five values and two counts.
inline secure::RoundContext context_of(const std::vector<int64_t>& clients, int64_t threshold, int64_t attempt = 0) {
  const auto members = static_cast<int64_t>(clients.size());
  const auto format = secure::RingFormat::of(32, 0.5, members);
  secure::RoundContext context{.run = "hospital",
                               .config = "digest",
                               .round = 3,
                               .attempt = attempt,
                               .bits = 32,
                               .exponent = format.exponent,
                               .range = format.range,
                               .threshold = threshold,
                               .values = 5,
                               .counts = 2};
  for (const int64_t client : clients)
    context.roster.push_back({client, key_of(client), 1.0 / static_cast<double>(members)});
  return context;
}
inline secure::NodeRules rules_of(int64_t client) {
  return {.run = "hospital", .config = "digest", .own_key = key_of(client)};
}
/// The summand of a client: different numbers for each client.
inline secure::RingVector summand_of(int64_t client) {
  return {at::arange(5, at::kInt) * 1000 + client * 7, at::tensor({client, client * client}, at::kLong)};
}
/// The sum of the summands of clients.
inline secure::RingVector sum_of(const std::vector<int64_t>& clients) {
  secure::RingVector sum{at::zeros({5}, at::kInt), at::zeros({2}, at::kLong)};
  for (const int64_t client : clients) {
    secure::add_to(sum.values, summand_of(client).values);
    secure::add_to(sum.counts, summand_of(client).counts);
  }
  return sum;
}
inline bool same(const secure::RingVector& one, const secure::RingVector& other) {
  return at::equal(one.values, other.values) && at::equal(one.counts, other.counts);
}

/// A round of which every step can be done by hand.
struct MaskedRound {
  secure::RoundContext context;
  secure::ServerRound server;
  std::map<secure::Place, ListedRounds> summed{};
  std::map<secure::Place, secure::NodeRound> nodes{};

  explicit MaskedRound(const std::vector<int64_t>& clients, int64_t threshold)
      : context(context_of(clients, threshold)), server(context) {
    for (secure::Place place = 0; place < context.members(); ++place)
      nodes.emplace(place, secure::NodeRound(context, rules_of(client(place)), summed[place]));
  }
  int64_t client(secure::Place place) const { return context.roster[static_cast<size_t>(place)].client; }

  void exchange_keys() {
    for (auto& [place, node] : nodes) server.take_keys(node.keys(signer_of(client(place))), verified);
  }
  void exchange_shares() {
    for (auto& [place, node] : nodes) server.take_shares(node.take_keys(server.all_keys(), verified));
    for (auto& [place, node] : nodes) node.take_shares(server.inbox_of(place));
  }
  secure::RingVector masked(secure::Place place) {
    auto summand = summand_of(client(place));
    nodes.at(place).mask(summand);
    return summand;
  }
  /// Phases 1 to 3, without the uploads of `lost`.
  void train(const std::vector<secure::Place>& lost = {}) {
    exchange_keys();
    exchange_shares();
    for (auto& [place, node] : nodes)
      if (std::find(lost.begin(), lost.end(), place) == lost.end()) server.take_upload(place, masked(place));
    server.close();
  }
  void sign(secure::Place place) {
    server.take_signature(place, nodes.at(place).sign(server.close(), signer_of(client(place))), verified);
  }
  secure::UnmaskReply unmasked(secure::Place place) {
    return nodes.at(place).unmask(server.unmask_request(), verified, summed[place]);
  }
  std::vector<secure::Place> survivors() {
    std::vector<secure::Place> places;
    for (secure::Place place = 0; place < context.members(); ++place)
      if (server.close()[static_cast<size_t>(place)]) places.push_back(place);
    return places;
  }
  std::vector<int64_t> surviving_clients() {
    std::vector<int64_t> clients;
    for (const secure::Place place : survivors()) clients.push_back(client(place));
    return clients;
  }
  /// Phases 4 and 5 with all survivors.
  secure::RingVector finish() {
    for (const secure::Place place : survivors()) sign(place);
    for (const secure::Place place : survivors()) server.take_unmask(place, unmasked(place));
    return server.sum();
  }
};

}  // namespace evenkeel::testing
