#include "flower/federation/node_masks.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/base64.h"
#include "base/plain/log.h"
#include "crypto/hkdf.h"
#include "flower/federation/agreed_terms.h"
#include "flower/federation/mask_messages.h"

namespace evenkeel::flower {
namespace {

constexpr const char* kMasksFolder = "secure";
/// Least weight of the other members together: with less, the sum would be the node's own upload.
constexpr double kLeastOthers = 0.05;

secure::Sign signer(const Key& key) {
  return [&key](std::string_view text) { return key.sign(text); };
}

/// Reads the set in a message about the survivors of an attempt.
secure::SummedSet set_in(const MaskHeader& header) { return header.read<secure::SummedSet>("set"); }

}  // namespace

void require_masks_as_agreed(const NodeClientOptions& options, const fed::RunConfig& config) {
  const bool masks = config->secure_aggregation.mode == fed::SecureMode::kMasks;
  EK_CHECK(masks || !options.masking.is_required(), kConfig,
           "the run's secure_aggregation.mode is not masks, and this node was started with --peers or --min-peers");
  if (!masks) return;
  EK_CHECK(!options.masking.key.empty(), kConfig,
           "the run masks uploads (secure_aggregation.mode), for which a node has a key of its own: node --key");
  EK_CHECK(!options.folder.empty(), kInternal, "no folder to keep the secrets of masks in");
  EK_CHECK(!options.privacy.is_on() || !config->secure_aggregation.reports, kConfig,
           "the run sums losses and expert counts (secure_aggregation.reports), which this node withholds "
           "(--privacy-epsilon): they would be those of the other nodes alone. Allowed: reports = false");
}

NodeMasks::NodeMasks(const NodeClientOptions& options, const Offer& offer, fed::RunConfig config,
                     std::shared_ptr<const NodeNoise> noise)
    : config_(std::move(config)),
      client_(offer.client),
      key_(Key::load(options.masking.key)),
      rules_{.run = offer.run,
             .config = digest_of_run(offer.config),
             .own_key = key_.public_key().fingerprint(),
             .min_peers = options.masking.min_peers},
      store_(options.folder / kMasksFolder),
      noise_(std::move(noise)) {
  if (!options.masking.peers.empty()) rules_.peers = read_peers(options.masking.peers);
  auto stored = store_.load();
  if (!stored || stored->context.run != rules_.run) return;
  try {
    round_.emplace(std::move(*stored), rules_);
  } catch (const Error& error) {  // the owner's options are other ones now
    log::warning("[node] the attempt at a masked round that was under way is given up: ", error.what());
    wipe();
  }
}

Envelope NodeMasks::answer(const Envelope& envelope) {
  const auto& kind = envelope.kind;
  const auto header = kind == kMaskKeysEnvelope        ? keys(envelope)
                      : kind == kMaskRosterEnvelope    ? take_roster(envelope)
                      : kind == kMaskSharesEnvelope    ? take_shares(envelope)
                      : kind == kMaskSurvivorsEnvelope ? sign_survivors(envelope)
                                                       : unmask(envelope);
  return {.run = envelope.run, .kind = kind, .header = header.dump()};
}

void NodeMasks::check_terms(const secure::RoundContext& context) const {
  const auto& secure = config_->secure_aggregation;
  EK_CHECK(context.round < config_->train.rounds, kData, "masks of round ", context.round + 1,
           ", agreed on: ", config_->train.rounds, " rounds");
  EK_CHECK(context.bits == secure.bits && (secure.range == 0 || context.range == secure.range), kData,
           "a masked round of ", context.bits, " bits and range ", context.range, ", agreed on: ", secure.bits, " and ",
           secure.range);
  EK_CHECK(context.threshold == secure.threshold_of(context.members()), kData, "a masked round of ", context.members(),
           " members with a threshold of ", context.threshold, ", agreed on: ", secure.threshold_of(context.members()));
  check_noise(context, *config_);
  double others = 0;
  for (const auto& member : context.roster) {
    if (member.fingerprint != rules_.own_key) others += member.weight;
    EK_CHECK(secure.weights != fed::SumWeights::kUniform || member.weight == context.roster.front().weight, kData,
             "unequal weights in a masked round, agreed on: uniform");
  }
  EK_CHECK(others >= kLeastOthers, kData, "the other members of a masked round have weight ", others,
           " together, allowed: ", kLeastOthers, " or more, because the sum would show this node's upload");
}

OrderedJson NodeMasks::keys(const Envelope& envelope) {
  const MaskHeader header(envelope, {"context"});
  const auto context = header.read<secure::RoundContext>("context");
  if (!round_ || !(round_->attempt().context == context)) {
    check_terms(context);
    if (noise_) noise_->require_budget(context);
    secure::NodeRound begun(context, rules_, store_);
    const auto& own = context.roster[static_cast<size_t>(begun.place())];
    EK_CHECK(own.client == client_, kData, "the roster says that this node is client ", own.client, ", it is client ",
             client_);
    round_.emplace(std::move(begun));
    save();
  }
  return {{"keys", secure::to_json(round_->keys(signer(key_)))}, {"identity", key_.public_key().pem()}};
}

secure::NodeRound& NodeMasks::attempt(const std::string& name) {
  EK_CHECK(round_ && name_of(round_->attempt().context) == name, kData,
           "lost: this node has no keys of this attempt at a masked round");
  return *round_;
}

OrderedJson NodeMasks::take_roster(const Envelope& envelope) {
  const MaskHeader header(envelope, {"attempt", "keys", "identities"});
  auto& round = attempt(header.at("attempt").string());
  Identities identities;
  for (const auto& pem : header.texts("identities")) identities.add(pem);
  const auto& shares = round.take_keys(header.keys(), identities.verifier());
  save();
  return {{"shares", secure::to_json(shares)}};
}

OrderedJson NodeMasks::take_shares(const Envelope& envelope) {
  const MaskHeader header(envelope, {"attempt", "inbox"});
  attempt(header.at("attempt").string()).take_shares(header.read<secure::Inbox>("inbox"));
  save();
  return OrderedJson::object();
}

OrderedJson NodeMasks::sign_survivors(const Envelope& envelope) {
  const MaskHeader header(envelope, {"set"});
  const auto set = set_in(header);
  auto& round = attempt(to_base64(crypto::view_of(set.context)));
  const auto signature = round.sign(set.survivors, signer(key_));
  save();
  return {{"signature", to_base64(signature)}};
}

OrderedJson NodeMasks::unmask(const Envelope& envelope) {
  const MaskHeader header(envelope, {"attempt", "request", "identities"});
  auto& round = attempt(header.at("attempt").string());
  Identities identities;
  for (const auto& pem : header.texts("identities")) identities.add(pem);
  const auto request = header.read<secure::UnmaskRequest>("request");
  const auto reply = round.unmask(request, identities.verifier(), store_);
  log::info("[node] round ", round.attempt().context.round + 1, ": helps to take the masks off the sum of ",
            secure::count_of(request.survivors), " of ", request.survivors.size(), " uploads");
  return {{"reply", secure::to_json(reply)}};
}

void NodeMasks::admit(const fed::Task& task) const {
  const auto* ask = std::get_if<fed::Train>(&task.ask);
  if (!ask) return;
  EK_CHECK(ask->summed, kData, "asked for an upload without masks, agreed on: masks");
  EK_CHECK(round_ && round_->attempt().context.round == task.round, kData,
           "lost: this node has no keys for the masks of round ", task.round + 1);
  const auto& context = round_->attempt().context;
  std::vector<int64_t> roster;
  for (const auto& member : context.roster) roster.push_back(member.client);
  const auto& own = context.roster[static_cast<size_t>(round_->place())];
  const auto& terms = *ask->summed;
  EK_CHECK(terms.roster == roster && terms.weight == own.weight && terms.format() == context.format() &&
               terms.noise == noise_in(context),
           kData, "asked for a summand on other terms than those of the masks of round ", task.round + 1);
}

/// The key of an attempt: it is never told, and another attempt rounds anew.
crypto::Secret NodeMasks::rounding_key(const fed::Task&) {
  const auto& attempt = round_.value().attempt();
  return crypto::hkdf(crypto::view_of(secure::digest_of(attempt.context)), attempt.share_secret.view(),
                      "evenkeel secagg 1 rounding");
}

void NodeMasks::add(const fed::Task&, const secure::RingVector& summand) {
  auto& round = round_.value();
  const auto& context = round.attempt().context;
  EK_CHECK(summand.values.numel() == context.values && summand.counts.numel() == context.counts, kData,
           "the masks of round ", context.round + 1, " are for ", context.values, " values and ", context.counts,
           " counts, this node has ", summand.values.numel(), " and ", summand.counts.numel());
  round.mask(summand);
  save();
}

void NodeMasks::committed(int64_t rounds) {
  if (round_ && round_->attempt().context.round < rounds) wipe();
}

void NodeMasks::wipe() {
  round_.reset();
  store_.wipe();
}

std::string NodeMasks::summary() const {
  const auto whom = rules_.peers.empty()
                        ? std::string("any nodes that the server names, which it could invent (node --peers)")
                        : concat("nodes of ", rules_.peers.size(), " known keys");
  return concat("; masked: the server reads only the sum of ",
                std::max(rules_.min_peers, config_->secure_aggregation.threshold), " or more uploads, of ", whom);
}

}  // namespace evenkeel::flower
