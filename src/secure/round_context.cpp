#include "secure/round_context.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/plain/error.h"
#include "base/plain/json.h"
#include "base/plain/sha256.h"
#include "base/plain/text.h"

namespace evenkeel::secure {
namespace {

constexpr double kWeightRounding = 1e-9;

std::string hexadecimal(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%a", value);
  return text.data();
}

void check_run(const RoundContext& context, const NodeRules& rules) {
  EK_CHECK(context.run == rules.run && context.config == rules.config, kData, "a masked round of run ",
           shown(context.run), " and config ", shown(context.config), ", this node agreed to ", rules.run, " and ",
           rules.config);
  EK_CHECK(context.round >= 0 && context.attempt >= 0, kData, "a masked round ", context.round, ", attempt ",
           context.attempt);
}

void check_scale(const RoundContext& context) {
  const int most = RingFormat::of(context.bits, context.range, context.members()).exponent;
  const int allowed = context.variance > 0 ? std::min(0, most) : most;  // noisy changes are integers
  EK_CHECK(context.exponent == allowed, kData, "masked sums with scale 2^", context.exponent,
           " could overflow or lose the smaller uploads, allowed: 2^", allowed);
  EK_CHECK(context.values >= 0 && context.counts >= 0, kData, "masked uploads of ", context.values, " values and ",
           context.counts, " counts");
}

void check_threshold(const RoundContext& context) {
  const int64_t members = context.members(), t = context.threshold;
  EK_CHECK(t >= kFewestMembers && 2 * t > members && t <= members, kData, "a threshold of ", t, " of ", members,
           " members, allowed: more than half, ", kFewestMembers, " or more");
}

void check_weights(const RoundContext& context) {
  double sum = 0;
  for (const auto& member : context.roster) {
    EK_CHECK(member.weight >= 0 && member.weight <= 1, kData, "client ", member.client, " has weight ", member.weight,
             " in a masked sum, allowed: 0 to 1");
    sum += member.weight;
  }
  EK_CHECK(sum <= 1 + kWeightRounding, kData, "the weights of a masked sum add up to ", sum, ", allowed: up to 1");
}

Place place_in_roster(const RoundContext& context, const NodeRules& rules) {
  std::optional<Place> own;
  std::set<std::string> seen;
  std::set<int64_t> clients;
  for (Place place = 0; place < context.members(); ++place) {
    const auto& [client, key, weight] = context.roster[static_cast<size_t>(place)];
    EK_CHECK(seen.insert(key).second && clients.insert(client).second, kData, "the roster names client ", client,
             " with key ", shown(key), " twice");
    EK_CHECK(rules.peers.empty() || rules.peers.contains(key) || key == rules.own_key, kData, "the roster has client ",
             client, " with key ", shown(key), ", which is none of this node's peers");
    if (key == rules.own_key) own = place;
  }
  EK_CHECK(own, kData, "the roster lacks this node's key ", rules.own_key);
  return *own;
}

}  // namespace

void check_weight_shares(const RoundContext& context, const std::vector<bool>& members) {
  double sum = 0;
  for (size_t place = 0; place < members.size(); ++place)
    if (members[place]) sum += context.roster[place].weight;
  for (size_t place = 0; place < members.size(); ++place) {
    const auto& [client, key, weight] = context.roster[place];
    EK_CHECK(!members[place] || weight <= kMostShare * sum, kData, "client ", client, " has ", weight,
             " of the weight ", sum, " of a masked sum, which would show its upload, allowed: up to ", kMostShare,
             " of it");
  }
}

std::string canonical(const RoundContext& context) {
  OrderedJson roster = OrderedJson::array();
  for (size_t place = 0; place < context.roster.size(); ++place) {
    const auto& member = context.roster[place];
    roster.push_back({place, member.client, member.fingerprint, hexadecimal(member.weight)});
  }
  OrderedJson json = {{"version", 1},
                      {"run", context.run},
                      {"config", context.config},
                      {"round", context.round},
                      {"attempt", context.attempt},
                      {"bits", context.bits},
                      {"exponent", context.exponent},
                      {"range", hexadecimal(context.range)},
                      {"threshold", context.threshold},
                      {"values", context.values},
                      {"counts", context.counts},
                      {"roster", roster}};
  if (context.variance > 0) json["noise"] = {hexadecimal(context.clip), context.variance, context.indicator_variance};
  return json.dump();
}

Bytes32 digest_of(const RoundContext& context) {
  Sha256 digest;
  digest.update(canonical(context));
  return digest.bytes();
}

Place check_context(const RoundContext& context, const NodeRules& rules) {
  check_run(context, rules);
  const int64_t members = context.members(), fewest = std::max(rules.min_peers, kFewestMembers);
  EK_CHECK(members >= fewest && members <= kMostMembers, kData, "a roster of ", members, " members, allowed: ", fewest,
           " to ", kMostMembers);
  check_threshold(context);
  check_weights(context);
  check_weight_shares(context, std::vector<bool>(context.roster.size(), true));
  check_scale(context);
  return place_in_roster(context, rules);
}

}  // namespace evenkeel::secure
