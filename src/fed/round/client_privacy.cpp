#include "fed/round/client_privacy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "base/plain/number_text.h"
#include "crypto/hkdf.h"
#include "fed/config/privacy_guarantee.h"
#include "fed/config/sampling.h"
#include "fed/store/run_files.h"
#include "privacy/adaptive_clip.h"
#include "privacy/discrete_gaussian.h"
#include "privacy/loss_distribution.h"

namespace evenkeel::fed {
namespace {

constexpr auto kFolder = run_file("privacy");
constexpr double kMostSum = 0x1p62;     // magnitude of a noisy sum
constexpr double kWidestDraw = 40;      // standard deviations that no draw exceeds
constexpr double kIndicatorShare = 20;  // clients of a round per client of noise in the indicators

fs::path checked_folder(const fs::path& run, int64_t rounds_done) {
  const auto folder = run / kFolder;
  EK_CHECK(rounds_done == 0 || privacy::Ledger::exists(folder), kCheckpoint, (folder / privacy::Ledger::kFile).string(),
           " is missing: it had the account of ", rounds_done,
           " rounds, and without it none can follow; a new run can begin with the adapter of this one (lora.init)");
  return folder;
}

/// Checks that the account has the run's plan and every committed round: the files may be older than the run.
void require_committed(const privacy::Ledger& ledger, const std::string& name, const fs::path& run,
                       int64_t rounds_done) {
  EK_CHECK(ledger.plan_of(name) || rounds_done == 0, kCheckpoint, (run / kFolder).string(), " has no account of run ",
           name);
  for (int64_t round = 1; round <= rounds_done; ++round)
    EK_CHECK(ledger.holds(name, round), kCheckpoint, "the account in ", kFolder,
             "/ of the run has no release of round ", round,
             ", which is done: it is older than the run, and without its later lines no round can follow");
}

/// Returns the largest number of rounds in which a client takes part.
int64_t most_rounds_of_a_client(const Server& server) {
  const int64_t rounds = server.config->train.rounds;
  if (server.config->privacy.sampling != PrivacySampling::kFixed) return rounds;
  std::map<int64_t, int64_t> counts;
  int64_t most = 1;
  for (int64_t round = 0; round < rounds; ++round)
    for (const auto& client : server.drawn(round).participants) most = std::max(most, ++counts[client.id]);
  return most;
}

double sampling_probability(const ExperimentConfig& config) {
  const auto& privacy = config.privacy;
  if (privacy.sampling != PrivacySampling::kPoisson) return 1;
  if (privacy.noise_cohort == 0) return config.clients.participation;
  return static_cast<double>(privacy.noise_cohort) / static_cast<double>(config.clients.count);
}

double clients_present(const Server& server, int64_t round) {
  return static_cast<double>(
      std::ranges::count_if(server.clients, [&](const auto& client) { return client.may_be_drawn(round); }));
}

/// Returns the expected share of the clients present that is drawn.
double expected_share(const Server& server, const methods::RoundView& drawn) {
  if (server.config->privacy.sampling == PrivacySampling::kPoisson) return server.config->clients.participation;
  return static_cast<double>(drawn.participants.size()) / clients_present(server, drawn.round);
}

void append(std::string& text, double value) { crypto::append_be64(text, std::bit_cast<uint64_t>(value)); }

double squared_norm(std::span<const int64_t> values) {
  double sum = 0;
  for (const int64_t value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

}  // namespace

double private_divisor(const Server& server, const methods::RoundView& drawn) {
  double weights = 0;
  for (const auto& client : server.clients)
    if (client.may_be_drawn(drawn.round)) weights += private_weight(server.config->privacy, client);
  return weights * expected_share(server, drawn);
}

double expected_clients(const Server& server, const methods::RoundView& drawn) {
  return clients_present(server, drawn.round) * expected_share(server, drawn);
}

double indicator_noise(const PrivacySection& privacy, double clients) {
  if (!privacy.adapt.is_on()) return 0;
  return privacy.adapt.indicator_noise > 0 ? privacy.adapt.indicator_noise : clients / kIndicatorShare;
}

void withhold(const PrivacySection& privacy, train::LocalReport& report) {
  const int64_t steps = privacy.public_sizes ? report.steps : 0;
  report = {};
  report.steps = steps;
}

void check_account(const Server& server, const fs::path& run, int64_t rounds_done) {
  if (!server.config->privacy.protects_clients()) return;
  const auto folder = checked_folder(run, rounds_done);
  if (privacy::Ledger::exists(folder))
    require_committed(privacy::Ledger(folder), server.config->name, run, rounds_done);
}

ClientPrivacy::ClientPrivacy(const Server& server, const fs::path& run, int64_t rounds_done)
    : server_(server), options_(server.config->privacy), ledger_(checked_folder(run, rounds_done)) {
  key_ = options_.noise == PrivacyNoise::kSeeded ? seeded_privacy_key(server.seed()) : ledger_.key();
  require_committed(ledger_, server.config->name, run, rounds_done);
  if (!ledger_.plan_of(server.config->name)) {
    if (!options_.continues.empty()) carry(fs::path(expand_home(options_.continues, "privacy.continues")) / kFolder);
    ledger_.add(new_plan());
  }
  plan_ = *ledger_.plan_of(server.config->name);
  noise_of_changes(expected_clients(server, server.drawn(rounds_done)));
  EK_CHECK(rounds_done > 0 || allows(0), kConfig, "privacy.epsilon is ", plan_.epsilon,
           ", which does not allow one round with noise multiplier ", plan_.noise,
           " (spent before: ", fixed(ledger_.accounts().spent(plan_.delta).epsilon, 3), ")");
}

/// Takes over the releases of an earlier run. Those that a killed process took over are there already.
void ClientPrivacy::carry(const fs::path& earlier) {
  EK_CHECK(privacy::Ledger::exists(earlier), kConfig, "privacy.continues is ", options_.continues, ", which has no ",
           (fs::path(kFolder) / privacy::Ledger::kFile).string());
  for (auto release : privacy::Ledger::releases(earlier)) {
    if (ledger_.holds(release.digest)) continue;
    release.run = concat("earlier ", release.run);
    ledger_.add(release, options_.delta);
  }
}

privacy::Plan ClientPrivacy::new_plan() const {
  privacy::Plan plan{.run = server_.config->name,
                     .epsilon = options_.epsilon,
                     .delta = options_.delta,
                     .clip = options_.clip,
                     .sampling = sampling_probability(*server_.config),
                     .noise = options_.noise_multiplier};
  if (plan.noise > 0) return plan;
  plan.noise = privacy::least_noise(plan.sampling, most_rounds_of_a_client(server_), {plan.epsilon, plan.delta},
                                    ledger_.accounts().largest(plan.delta));
  return plan;
}

privacy::MemberAccounts::Members ClientPrivacy::payers(const methods::RoundView& drawn) const {
  if (options_.sampling != PrivacySampling::kFixed) return {};
  std::vector<int64_t> ids;
  for (const auto& client : drawn.participants) ids.push_back(client.id);
  return ids;
}

bool ClientPrivacy::allows(int64_t round) const {
  if (plan_.epsilon == 0 || ledger_.holds(plan_.run, round + 1)) return true;
  return !ledger_.accounts().would_exceed(event(), payers(server_.drawn(round)), budget());
}

double ClientPrivacy::noise_of_changes(double clients) const {
  if (!options_.adapt.is_on()) return plan_.noise;
  return privacy::noise_beside_indicators(plan_.noise, std::sqrt(static_cast<double>(indicator_variance(clients))) / 2);
}

int64_t ClientPrivacy::indicator_variance(double clients) const {
  const auto& adapt = options_.adapt;
  const double deviation = 2 * indicator_noise(options_, clients);
  EK_CHECK(deviation * deviation <= static_cast<double>(privacy::kMostVariance), kConfig,
           "privacy.adapt.indicator_noise is ", adapt.indicator_noise, ", which is too large for exact noise");
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(deviation * deviation)));
}

void ClientPrivacy::charge(const PrivateSum& sum, const std::string& digest) {
  if (ledger_.holds(digest)) return;
  const int64_t round = sum.drawn.round + 1;
  const auto members = payers(sum.drawn);
  if (plan_.epsilon > 0 && ledger_.accounts().would_exceed(event(), members, budget()))
    throw BudgetSpent(concat("round ", round, " was released before with other uploads, and privacy.epsilon = ",
                             plan_.epsilon, " does not allow to release it again"));
  ledger_.add(privacy::Release{.run = plan_.run,
                               .round = round,
                               .noise = plan_.noise,
                               .sampling = plan_.sampling,
                               .times = 1,
                               .clip = sum.clip,
                               .members = members,
                               .digest = digest},
              plan_.delta);
}

int64_t ClientPrivacy::variance_of(const PrivateSum& sum) const {
  if (sum.added) return sum.added->member.variance;
  const double clients = expected_clients(server_, sum.drawn);
  const double scale = options_.noise_cohort > 0 ? clients / static_cast<double>(options_.noise_cohort) : 1;
  const int64_t variance = privacy::noise_variance(noise_of_changes(clients) * scale, sum.grid);
  const double largest = static_cast<double>(sum.drawn.participants.size()) * static_cast<double>(sum.grid.bound) +
                         kWidestDraw * std::sqrt(static_cast<double>(variance));
  EK_CHECK(largest < kMostSum, kConfig, "privacy: a sum of ", sum.drawn.participants.size(),
           " changes with noise multiplier ", plan_.noise, " does not fit into 64 bits");
  return variance;
}

std::string ClientPrivacy::digest_of(const PrivateSum& sum, int64_t variance) const {
  std::string info = "evenkeel dp release 1";
  (info += '\0').append(plan_.run) += '\0';
  crypto::append_be64(info, static_cast<uint64_t>(sum.drawn.round));
  crypto::append_be64(info, static_cast<uint64_t>(variance));
  for (const double value : {sum.clip, sum.divisor}) append(info, value);
  info.append(crypto::view_of(privacy::digest_of(sum.values)));
  return sha256(crypto::hkdf_expand(key_, info).view());
}

/// The seeds depend on the variances, so that equal sums of two rounds with other noise have nothing in common.
void ClientPrivacy::add_noise(const PrivateSum& sum, int64_t variance) const {
  const auto round = static_cast<uint64_t>(sum.drawn.round);
  const int64_t of_indicators = options_.adapt.is_on() ? indicator_variance(expected_clients(server_, sum.drawn)) : 0;
  const auto seed = privacy::noise_seed(key_, {plan_.run, round, concat("changes, variance ", variance)}, sum.values);
  const auto indicator_seed =
      privacy::noise_seed(key_, {plan_.run, round, concat("indicators, variance ", of_indicators)}, sum.values);
  privacy::add_discrete_gaussian(sum.values.first(sum.values.size() - 1), variance, seed);
  if (of_indicators > 0) sum.values.back() += privacy::DiscreteGaussian(indicator_seed).draw(of_indicators);
}

double ClientPrivacy::adapted_clip(const PrivateSum& sum) {
  if (!options_.adapt.is_on()) return sum.clip;
  const double step = sum.added ? static_cast<double>(privacy::kIndicatorStep) : 1;
  const double clients = expected_clients(server_, sum.drawn);
  record_.share_within = 0.5 + static_cast<double>(sum.values.back()) / step / (2 * clients);
  return privacy::next_clip(sum.clip, *record_.share_within, options_.adapt.target, options_.adapt.rate);
}

double ClientPrivacy::release(const PrivateSum& sum) {
  const int64_t variance = variance_of(sum);
  charge(sum, digest_of(sum, variance));
  if (!sum.added) add_noise(sum, variance);
  fill_record(sum, static_cast<double>(sum.added ? sum.added->clients * variance : variance));
  return adapted_clip(sum);
}

void ClientPrivacy::fill_record(const PrivateSum& sum, double variance) {
  const auto changes = sum.values.first(sum.values.size() - 1);
  const double noise = variance * static_cast<double>(changes.size());
  const auto spent = ledger_.accounts().spent(plan_.delta);
  const int64_t next = sum.drawn.round + 1;
  record_ = {.unit = options_.unit,
             .relation = options_.sampling == PrivacySampling::kPoisson ? "add-or-remove" : "zero-out",
             .sampling = options_.sampling,
             .probability = plan_.sampling,
             .noise = plan_.noise,
             .clip = sum.clip,
             .divisor = sum.divisor,
             .values = static_cast<int64_t>(changes.size()),
             .epsilon = spent.epsilon,
             .order = spent.order,
             .delta = plan_.delta,
             .epsilon_pld =
                 privacy::loss_distribution_epsilon(ledger_.accounts().largest(plan_.delta).releases(), plan_.delta),
             .signal = std::sqrt(std::max(0.0, squared_norm(changes) - noise) / noise),
             .signal_bound = sum.divisor * static_cast<double>(sum.grid.bound) / std::sqrt(noise),
             .simulated = options_.is_simulated() || (sum.added && !server_.clients_are_nodes())};
  if (record_.epsilon_pld && !std::isfinite(*record_.epsilon_pld)) record_.epsilon_pld.reset();
  if (sum.added) record_.honest = sum.added->honest;
  if (plan_.epsilon > 0) record_.budget = plan_.epsilon;
  if (options_.noise_cohort > 0) record_.simulated_cohort = options_.noise_cohort;
  if (next < server_.config->train.rounds && !allows(next)) record_.ended_by = "privacy budget";
}

std::string ClientPrivacy::summary() const {
  return concat(privacy_guarantee(*server_.config), "; noise multiplier ", fixed(plan_.noise, 4),
                ", spent before: ", fixed(ledger_.accounts().spent(plan_.delta).epsilon, 3));
}

}  // namespace evenkeel::fed
