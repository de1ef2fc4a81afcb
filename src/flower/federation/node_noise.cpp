#include "flower/federation/node_noise.h"

#include "base/plain/number_text.h"
#include "base/plain/sha256.h"
#include "crypto/hkdf.h"

namespace evenkeel::flower {
namespace {

constexpr const char* kAccountFolder = "client-privacy";
constexpr double kNoiseRounding = 1e-9;  // of a noise multiplier, from whole variances

bool has_noise_of_clients(const fed::ExperimentConfig& config) {
  return config.privacy.protects_clients() && config.secure_aggregation.mode == fed::SecureMode::kMasks;
}

}  // namespace

void require_client_privacy_as_agreed(const ClientBudgetOptions& budget, const fed::RunConfig& config) {
  if (!budget.is_on()) return;
  EK_CHECK(has_noise_of_clients(*config), kConfig,
           "the run does not protect clients by their own noise (privacy.unit client, secure_aggregation.mode masks), "
           "and this node was started with --client-epsilon");
}

void check_noise(const secure::RoundContext& context, const fed::ExperimentConfig& config) {
  const privacy::MemberNoise noise{context.variance, context.indicator_variance};
  if (!has_noise_of_clients(config)) {
    EK_CHECK(noise == privacy::MemberNoise() && context.clip == 0, kData,
             "a masked round with noise of its members, agreed on: without");
    return;
  }
  const auto& privacy = config.privacy;
  EK_CHECK(noise.variance > 0 && (noise.indicator > 0) == privacy.adapt.is_on() && context.counts == 1, kData,
           "a masked round with noise variances ", noise.variance, " and ", noise.indicator, " of ", context.counts,
           " counts, which the config agreed on does not have");
  const auto grid = privacy::grid_of(context.values, context.clip);
  const double has = privacy::noise_multiplier(noise, grid, config.secure_aggregation.honest_of(context.members()));
  EK_CHECK(has >= privacy.noise_multiplier * (1 - kNoiseRounding), kData,
           "a masked round whose honest members have noise ", "multiplier ", has,
           ", agreed on: ", privacy.noise_multiplier);
  const double largest = privacy::largest_sum(noise, grid, context.members());
  EK_CHECK(context.exponent == 0 && context.range >= largest, kData, "a masked round of sums up to ", context.range,
           " at scale 2^", context.exponent, ", with noise they are up to ", largest, " at scale 2^0");
}

NodeNoise::NodeNoise(const NodeClientOptions& options, std::string run, fed::RunConfig config)
    : config_(std::move(config)), ledger_(options.folder / kAccountFolder) {
  const auto& privacy = config_->privacy;
  const auto& own = options.client_budget;
  plan_ = {.run = std::move(run),
           .epsilon = own.is_on() ? own.epsilon : privacy.epsilon,
           .delta = own.is_on() ? own.delta : privacy.delta,
           .clip = privacy.clip,
           .noise = privacy.noise_multiplier};
  const auto known = ledger_.plan_of(plan_.run);
  if (!known || known->epsilon != plan_.epsilon || known->delta != plan_.delta || known->noise != plan_.noise)
    ledger_.add(plan_);
}

privacy::Event NodeNoise::event(const privacy::MemberNoise& noise, const privacy::Grid& grid, int64_t members) const {
  return {.noise = privacy::noise_multiplier(noise, grid, config_->secure_aggregation.honest_of(members))};
}

void NodeNoise::require(const privacy::Event& event) const {
  const auto& account = ledger_.account();
  const privacy::Budget budget{.epsilon = plan_.epsilon, .delta = plan_.delta};
  EK_CHECK(plan_.epsilon == 0 || !account.would_exceed(event, 1, budget), kConfig,
           "the privacy budget of this node as a client is spent: epsilon ",
           fixed(account.spent(plan_.delta).epsilon, 3), " of ", plan_.epsilon, " at delta ", plan_.delta,
           ", and one more round would exceed it");
}

void NodeNoise::require_budget(const secure::RoundContext& context) const {
  if (ledger_.holds(plan_.run, context.round + 1)) return;  // a repetition; charge() decides
  require(event({context.variance, context.indicator_variance}, privacy::grid_of(context.values, context.clip),
                context.members()));
}

crypto::Secret NodeNoise::charge(const fed::Task& task, const fed::SummedTerms& terms,
                                 std::span<const int64_t> change) {
  const auto& noise = terms.noise.value();
  const auto grid = privacy::grid_of(std::ssize(change) - 1, noise.clip);
  std::string info = "evenkeel dp client release 1";
  (info += '\0').append(plan_.run) += '\0';
  for (const int64_t number : {task.round, noise.member.variance, noise.member.indicator})
    crypto::append_be64(info, static_cast<uint64_t>(number));
  info.append(crypto::view_of(privacy::digest_of(change)));
  const auto digest = sha256(crypto::hkdf_expand(ledger_.key(), info).view());
  if (!ledger_.holds(digest)) {
    const auto charged = event(noise.member, grid, std::ssize(terms.roster));
    require(charged);
    ledger_.add(
        privacy::Release{
            .run = plan_.run, .round = task.round + 1, .noise = charged.noise, .clip = noise.clip, .digest = digest},
        plan_.delta);
  }
  return crypto::hkdf_expand(ledger_.key(), concat("evenkeel dp client noise 1 ", plan_.run));
}

std::string NodeNoise::summary() const {
  const auto& secure = config_->secure_aggregation;
  return concat("; private for this node as a whole, also towards the server: noise multiplier ", fixed(plan_.noise, 4),
                " of all nodes together, ", plan_.epsilon > 0 ? concat("epsilon up to ", plan_.epsilon) : "no budget",
                " at delta ", plan_.delta, " (", fixed(ledger_.account().spent(plan_.delta).epsilon, 3),
                " spent before), where up to ", secure.colluders, " nodes work together with the server");
}

}  // namespace evenkeel::flower
