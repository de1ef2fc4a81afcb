#include "secure/round_json.h"

#include <algorithm>
#include <charconv>

#include "base/plain/base64.h"
#include "crypto/secret.h"

namespace evenkeel::secure {
namespace {

constexpr size_t kLongestBytes = 4096;  // of a signature or a box

std::string base64_of(std::span<const uint8_t> bytes) { return to_base64(crypto::view_of(bytes)); }

std::string bytes_in(const JsonView& view) {
  auto bytes = from_base64(view.string());
  view.require(bytes && bytes->size() <= kLongestBytes, " is no Base64 of up to ", kLongestBytes, " bytes");
  return std::move(*bytes);
}

Bytes32 bytes32_in(const JsonView& view) {
  const auto text = bytes_in(view);
  Bytes32 bytes{};
  view.require(text.size() == bytes.size(), " has ", text.size(), " bytes, expected ", bytes.size());
  std::copy(text.begin(), text.end(), bytes.begin());
  return bytes;
}

Secret secret_in(const JsonView& view) {
  Bytes32 bytes = bytes32_in(view);
  const Secret secret(bytes);
  crypto::wipe(bytes);
  return secret;
}

Place place_in(const JsonView& view) { return static_cast<Place>(view.integer(0, kMostMembers - 1)); }

/// Returns the place that a member of an object has as its key.
Place place_of_key(const JsonView& member) {
  Place place = -1;
  const auto& key = member.key();
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), place);
  member.require(error == std::errc() && end == key.data() + key.size() && place >= 0 && place < kMostMembers &&
                     std::to_string(place) == key,
                 ": the key is no place");
  return place;
}

template <typename T, typename Encode>
OrderedJson by_place(const std::map<Place, T>& values, const Encode& encode) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [place, value] : values) json[std::to_string(place)] = encode(value);
  return json;
}
OrderedJson secrets_of(const std::map<Place, Secret>& secrets) {
  return by_place(secrets, [](const Secret& secret) { return base64_of(secret.bytes()); });
}
OrderedJson texts_of(const std::map<Place, std::string>& texts) {
  return by_place(texts, [](const std::string& text) { return to_base64(text); });
}

template <typename Read>
auto read_by_place(const JsonView& view, const Read& read) {
  std::map<Place, decltype(read(view))> values;
  for (const auto& member : view.members()) values.emplace(place_of_key(member), read(member));
  return values;
}

OrderedJson survivors_of(const Survivors& survivors) {
  std::string text;
  for (const bool arrived : survivors) text += arrived ? '1' : '0';
  return text;
}
Survivors survivors_in(const JsonView& view) {
  Survivors survivors;
  for (const char mark : view.string()) {
    view.require(mark == '0' || mark == '1', " is no set of places");
    survivors.push_back(mark == '1');
  }
  view.require(survivors.size() <= static_cast<size_t>(kMostMembers), " has ", survivors.size(), " places");
  return survivors;
}

Member member_in(const JsonView& view) {
  return {.client = view.at("client").integer(0),
          .fingerprint = view.at("key").string(),
          .weight = view.at("weight").number()};
}

}  // namespace

OrderedJson to_json(const RoundContext& context) {
  OrderedJson roster = OrderedJson::array();
  for (const auto& [client, key, weight] : context.roster)
    roster.push_back({{"client", client}, {"key", key}, {"weight", weight}});
  return {{"run", context.run},           {"config", context.config},
          {"round", context.round},       {"attempt", context.attempt},
          {"bits", context.bits},         {"exponent", context.exponent},
          {"range", context.range},       {"threshold", context.threshold},
          {"values", context.values},     {"counts", context.counts},
          {"roster", std::move(roster)},  {"clip", context.clip},
          {"variance", context.variance}, {"indicator_variance", context.indicator_variance}};
}

void from_json(const JsonView& view, RoundContext& context) {
  constexpr int64_t kMostExponent = 1200, kMostValues = int64_t{1} << 40, kMostVariance = int64_t{1} << 56;
  context = {.run = view.at("run").string(),
             .config = view.at("config").string(),
             .round = view.at("round").integer(0),
             .attempt = view.at("attempt").integer(0),
             .bits = view.at("bits").integer(16, 64),
             .exponent = view.at("exponent").integer(-kMostExponent, kMostExponent),
             .range = view.at("range").number(),
             .threshold = view.at("threshold").integer(0, kMostMembers),
             .values = view.at("values").integer(0, kMostValues),
             .counts = view.at("counts").integer(0, kMostValues),
             .variance = view.at("variance").integer(0, kMostVariance),
             .indicator_variance = view.at("indicator_variance").integer(0, kMostVariance),
             .clip = view.at("clip").number()};
  const auto roster = view.at("roster").items();
  view.require(roster.size() <= static_cast<size_t>(kMostMembers), ": a roster of ", roster.size(), " members");
  for (const auto& member : roster) context.roster.push_back(member_in(member));
}

OrderedJson to_json(const KeysOfMember& keys) {
  return {{"place", keys.place},
          {"mask", base64_of(keys.mask_public)},
          {"share", base64_of(keys.share_public)},
          {"signature", to_base64(keys.signature)}};
}
void from_json(const JsonView& view, KeysOfMember& keys) {
  keys = {.place = place_in(view.at("place")),
          .mask_public = bytes32_in(view.at("mask")),
          .share_public = bytes32_in(view.at("share")),
          .signature = bytes_in(view.at("signature"))};
}

OrderedJson to_json(const SharesOfMember& shares) {
  return {{"place", shares.place}, {"commitment", base64_of(shares.commitment)}, {"boxes", texts_of(shares.boxes)}};
}
void from_json(const JsonView& view, SharesOfMember& shares) {
  shares = {.place = place_in(view.at("place")),
            .commitment = bytes32_in(view.at("commitment")),
            .boxes = read_by_place(view.at("boxes"), bytes_in)};
}

OrderedJson to_json(const Inbox& inbox) { return {{"boxes", texts_of(inbox.boxes)}}; }
void from_json(const JsonView& view, Inbox& inbox) { inbox.boxes = read_by_place(view.at("boxes"), bytes_in); }

OrderedJson to_json(const UnmaskRequest& request) {
  return {{"survivors", survivors_of(request.survivors)}, {"signatures", texts_of(request.signatures)}};
}
void from_json(const JsonView& view, UnmaskRequest& request) {
  request = {.survivors = survivors_in(view.at("survivors")),
             .signatures = read_by_place(view.at("signatures"), bytes_in)};
}

OrderedJson to_json(const UnmaskReply& reply) {
  return {{"seeds", secrets_of(reply.seeds)}, {"secrets", secrets_of(reply.secrets)}};
}
void from_json(const JsonView& view, UnmaskReply& reply) {
  reply = {.seeds = read_by_place(view.at("seeds"), secret_in),
           .secrets = read_by_place(view.at("secrets"), secret_in)};
}

OrderedJson to_json(const SummedSet& set) {
  return {{"context", base64_of(set.context)}, {"survivors", survivors_of(set.survivors)}};
}
void from_json(const JsonView& view, SummedSet& set) {
  set = {.context = bytes32_in(view.at("context")), .survivors = survivors_in(view.at("survivors"))};
}

OrderedJson to_json(const NodeAttempt& attempt) {
  OrderedJson json = {{"context", to_json(attempt.context)},
                      {"mask_secret", base64_of(attempt.mask_secret.bytes())},
                      {"share_secret", base64_of(attempt.share_secret.bytes())},
                      {"seed", base64_of(attempt.seed.bytes())},
                      {"keys", by_place(attempt.keys, [](const KeysOfMember& keys) { return to_json(keys); })},
                      {"seed_shares", secrets_of(attempt.seed_shares)},
                      {"secret_shares", secrets_of(attempt.secret_shares)}};
  if (attempt.shares) json["shares"] = to_json(*attempt.shares);
  if (attempt.upload) json["upload"] = base64_of(*attempt.upload);
  if (attempt.signed_set) json["signed_set"] = survivors_of(*attempt.signed_set);
  return json;
}

void from_json(const JsonView& view, NodeAttempt& attempt) {
  from_json(view.at("context"), attempt.context);
  attempt.mask_secret = secret_in(view.at("mask_secret"));
  attempt.share_secret = secret_in(view.at("share_secret"));
  attempt.seed = secret_in(view.at("seed"));
  attempt.keys = read_by_place(view.at("keys"), read_as<KeysOfMember>);
  attempt.seed_shares = read_by_place(view.at("seed_shares"), secret_in);
  attempt.secret_shares = read_by_place(view.at("secret_shares"), secret_in);
  if (const auto shares = view.find("shares")) attempt.shares = read_as<SharesOfMember>(*shares);
  if (const auto upload = view.find("upload")) attempt.upload = bytes32_in(*upload);
  if (const auto set = view.find("signed_set")) attempt.signed_set = survivors_in(*set);
}

}  // namespace evenkeel::secure
