#include "secure/node_round.h"

#include <algorithm>

#include "base/plain/error.h"
#include "base/plain/sha256.h"
#include "crypto/box.h"
#include "crypto/hkdf.h"
#include "crypto/x25519.h"

namespace evenkeel::secure {
namespace {

constexpr size_t kSecretBytes = 32;

Bytes32 digest_of(const RingVector& summand) {
  Sha256 digest;
  for (const auto* part : {&summand.values, &summand.counts})
    digest.update({static_cast<const char*>(part->const_data_ptr()), part->nbytes()});
  return digest.bytes();
}

void check_not_summed(const RoundContext& context, const Bytes32& digest, const SummedRounds& summed) {
  const auto known = summed.find(context.run, context.round);
  EK_CHECK(!known || known->context == digest, kData, "spent: this node helped to unmask round ", context.round + 1,
           " of run ", context.run, "; a second sum of a round could show a single upload");
}

std::string places(Place from, Place to) {
  std::string text;
  crypto::append_be16(text, static_cast<uint16_t>(from));
  crypto::append_be16(text, static_cast<uint16_t>(to));
  return text;
}

}  // namespace

NodeRound::NodeRound(RoundContext context, const NodeRules& rules, const SummedRounds& summed)
    : attempt_{.context = std::move(context)},
      min_peers_(rules.min_peers),
      digest_(secure::digest_of(attempt_.context)),
      place_(check_context(attempt_.context, rules)) {
  check_not_summed(attempt_.context, digest_, summed);
  attempt_.mask_secret = Secret::random();
  attempt_.share_secret = Secret::random();
  attempt_.seed = Secret::random();
}

NodeRound::NodeRound(NodeAttempt attempt, const NodeRules& rules)
    : attempt_(std::move(attempt)),
      min_peers_(rules.min_peers),
      digest_(secure::digest_of(attempt_.context)),
      place_(check_context(attempt_.context, rules)) {}

KeysOfMember NodeRound::keys(const Sign& sign) const {
  KeysOfMember keys{.place = place_,
                    .mask_public = crypto::x25519_public(attempt_.mask_secret),
                    .share_public = crypto::x25519_public(attempt_.share_secret)};
  keys.signature = sign(text_of_keys(digest_, keys));
  return keys;
}

void NodeRound::check_keys(std::span<const KeysOfMember> keys, const Verify& verify) const {
  const auto& roster = attempt_.context.roster;
  EK_CHECK(keys.size() == roster.size(), kData, "keys of ", keys.size(), " members, the roster has ", roster.size());
  for (size_t place = 0; place < keys.size(); ++place) {
    const auto& own = keys[place];
    EK_CHECK(own.place == static_cast<Place>(place), kData, "keys of place ", own.place, " at place ", place);
    EK_CHECK(verify(roster[place].fingerprint, text_of_keys(digest_, own), own.signature), kData, "the keys of client ",
             roster[place].client, " are not signed with its key ", roster[place].fingerprint);
  }
  const auto& mine = keys[static_cast<size_t>(place_)];
  EK_CHECK(mine.mask_public == crypto::x25519_public(attempt_.mask_secret) &&
               mine.share_public == crypto::x25519_public(attempt_.share_secret),
           kData, "the server changed this node's keys");
}

const SharesOfMember& NodeRound::take_keys(std::span<const KeysOfMember> keys, const Verify& verify) {
  check_keys(keys, verify);
  std::map<Place, KeysOfMember> known;
  for (const auto& one : keys) known[one.place] = one;
  if (attempt_.shares) {
    const bool same = std::all_of(known.begin(), known.end(), [&](const auto& one) {
      const auto& before = attempt_.keys.at(one.first);
      return before.mask_public == one.second.mask_public && before.share_public == one.second.share_public;
    });
    EK_CHECK(same, kData, "the server changed the keys of a member after this node had split its secrets");
    return *attempt_.shares;
  }
  attempt_.keys = std::move(known);
  attempt_.shares = split_secrets();
  return *attempt_.shares;
}

Secret NodeRound::box_key(Place from, Place to) const {
  const auto& other = attempt_.keys.at(from == place_ ? to : from);
  return crypto::hkdf(crypto::view_of(digest_), crypto::x25519(attempt_.share_secret, other.share_public).view(),
                      concat("evenkeel secagg 1 share", places(from, to)));
}

std::string NodeRound::box_text(Place from, Place to) const {
  return concat(crypto::view_of(digest_), places(from, to));
}

SharesOfMember NodeRound::split_secrets() {
  const int members = attempt_.context.members(), threshold = static_cast<int>(attempt_.context.threshold);
  const auto secrets = split(attempt_.mask_secret, members, threshold),
             seeds = split(attempt_.seed, members, threshold);
  SharesOfMember sent{.place = place_, .commitment = commitment_to(digest_, attempt_.seed)};
  for (Place to = 0; to < members; ++to) {
    const auto& secret = secrets[static_cast<size_t>(to)].value;
    const auto& seed = seeds[static_cast<size_t>(to)].value;
    if (to == place_) {
      attempt_.secret_shares[to] = secret;
      attempt_.seed_shares[to] = seed;
      continue;
    }
    std::string text = concat(secret.view(), seed.view());
    sent.boxes[to] = crypto::seal_box(box_key(place_, to), box_text(place_, to), text);
    crypto::wipe(text);
  }
  return sent;
}

void NodeRound::take_shares(const Inbox& inbox) {
  EK_CHECK(attempt_.shares, kData, "the server sends shares before keys");
  auto secrets = attempt_.secret_shares, seeds = attempt_.seed_shares;
  for (const auto& [from, keys] : attempt_.keys) {
    if (from == place_) continue;
    const auto box = inbox.boxes.find(from);
    const int64_t client = attempt_.context.roster[static_cast<size_t>(from)].client;
    EK_CHECK(box != inbox.boxes.end(), kData, "the shares of client ", client, " are missing");
    auto text = crypto::open_box(box_key(from, place_), box_text(from, place_), box->second);
    EK_CHECK(text && text->size() == 2 * kSecretBytes, kData, "the shares of client ", client, " cannot be read");
    secrets[from] = Secret::from(std::string_view(*text).substr(0, kSecretBytes), "a share");
    seeds[from] = Secret::from(std::string_view(*text).substr(kSecretBytes), "a share");
    crypto::wipe(*text);
  }
  attempt_.secret_shares = std::move(secrets);
  attempt_.seed_shares = std::move(seeds);
}

std::map<Place, Bytes32> NodeRound::publics() const {
  std::map<Place, Bytes32> publics;
  for (const auto& [place, keys] : attempt_.keys) publics[place] = keys.mask_public;
  return publics;
}

void NodeRound::mask(const RingVector& summand) {
  const auto& context = attempt_.context;
  EK_CHECK(static_cast<int>(attempt_.seed_shares.size()) == context.members(), kData,
           "an upload is asked for before the shares of all members are here");
  EK_CHECK(summand.values.numel() == context.values && summand.counts.numel() == context.counts &&
               summand.values.scalar_type() == context.format().type(),
           kInternal, "a summand of ", summand.values.numel(), " values and ", summand.counts.numel(),
           " counts, agreed: ", context.values, " and ", context.counts);
  const auto digest = digest_of(summand);
  EK_CHECK(!attempt_.upload || *attempt_.upload == digest, kData,
           "a second upload under the masks of one attempt: their difference would be in the clear");
  attempt_.upload = digest;
  add_streams(upload_keys(digest_, place_, attempt_.mask_secret, attempt_.seed, publics()), summand);
}

void NodeRound::check_survivors(const Survivors& survivors) const {
  const auto& context = attempt_.context;
  EK_CHECK(survivors.size() == context.roster.size(), kData, "a set of ", survivors.size(), " places, the roster has ",
           context.roster.size());
  EK_CHECK(attempt_.upload && survivors[static_cast<size_t>(place_)], kData,
           "the server leaves this node out of the set that it is asked to unmask");
  EK_CHECK(count_of(survivors) >= context.threshold, kData, "the server asks for the sum of ", count_of(survivors),
           " members, the threshold is ", context.threshold);
  EK_CHECK(count_of(survivors) >= min_peers_, kData, "the server asks for the sum of ", count_of(survivors),
           " members, this node helps with ", min_peers_, " or more");
  check_weight_shares(context, survivors);
}

std::string NodeRound::text_of(const Survivors& survivors) const {
  return text_of_survivors(digest_, secure::digest_of(attempt_.keys), survivors);
}

std::string NodeRound::sign(const Survivors& survivors, const Sign& sign) {
  check_survivors(survivors);
  EK_CHECK(!attempt_.signed_set || *attempt_.signed_set == survivors, kData,
           "the server tells this node a second set of survivors");
  attempt_.signed_set = survivors;
  return sign(text_of(survivors));
}

void NodeRound::check_signatures(const UnmaskRequest& request, const Verify& verify) const {
  const auto text = text_of(request.survivors);
  int64_t good = 0;
  for (const auto& [place, signature] : request.signatures) {
    const bool known = place >= 0 && place < attempt_.context.members();
    EK_CHECK(known && request.survivors[static_cast<size_t>(place)], kData, "a signature of place ", place,
             ", which is not in the set of survivors");
    const auto& member = attempt_.context.roster[static_cast<size_t>(place)];
    EK_CHECK(verify(member.fingerprint, text, signature), kData, "the set of survivors is not signed by client ",
             member.client);
    ++good;
  }
  EK_CHECK(good >= attempt_.context.threshold, kData, "the set of survivors is signed by ", good,
           " members, the threshold is ", attempt_.context.threshold);
}

UnmaskReply NodeRound::unmask(const UnmaskRequest& request, const Verify& verify, SummedRounds& summed) {
  check_survivors(request.survivors);
  EK_CHECK(attempt_.signed_set && *attempt_.signed_set == request.survivors, kData,
           "the server asks to unmask a set that this node did not sign");
  check_signatures(request, verify);
  const auto& context = attempt_.context;
  check_not_summed(context, digest_, summed);
  const SummedSet set{digest_, request.survivors};
  const auto known = summed.find(context.run, context.round);
  EK_CHECK(!known || *known == set, kData, "spent: this node helped to unmask another set of round ",
           context.round + 1);
  if (!known) summed.store(context.run, context.round, set);
  UnmaskReply reply;
  for (Place place = 0; place < context.members(); ++place)
    if (request.survivors[static_cast<size_t>(place)])
      reply.seeds[place] = attempt_.seed_shares.at(place);
    else
      reply.secrets[place] = attempt_.secret_shares.at(place);
  return reply;
}

}  // namespace evenkeel::secure
