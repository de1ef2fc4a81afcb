#include "fed/round/virtual_clock.h"

#include <algorithm>

#include "fed/config/sampling.h"

namespace evenkeel::fed {
namespace {

// Limit of clients x rounds whose drop-outs are simulated before a run; takes about a second.
constexpr int64_t kMostSimulatedDropouts = 20'000'000;

const MachineProfile& profile_of(const RunConfig& config, int64_t client) {
  return config->client_profiles.profiles.at(config.plan(client).machine);
}

SimulatedMachine machine_of(const RunConfig& config, int64_t client) {
  return {config.plan(client).machine, profile_of(config, client), static_cast<uint64_t>(config->seed), client};
}

/// Returns true if the clients have machines: either all or none has one.
bool simulates_time(const RunConfig& config) { return !config.plans().front().machine.empty(); }

/// Returns the seconds of the transfers before the first round, which are divided equally among the clients.
/// Computation is not counted.
double opening_seconds(const RunConfig& config, const OtherTraffic& opening) {
  if (!simulates_time(config)) return 0;
  const int64_t down = total_bytes(opening.down) / config->clients.count,
                up = total_bytes(opening.up) / config->clients.count;
  double slowest = 0;
  for (int64_t id = 0; id < config->clients.count; ++id) {
    const auto machine = machine_of(config, id);
    slowest = std::max(slowest, (down > 0 ? machine.down(down) : 0) + (up > 0 ? machine.up(up) : 0));
  }
  return slowest;
}

std::map<int64_t, SimulatedMachine> machines_of(const RunConfig& config, const methods::RoundView& round) {
  std::map<int64_t, SimulatedMachine> machines;
  if (!simulates_time(config)) return machines;
  for (const auto& client : round.participants) machines.emplace(client.id, machine_of(config, client.id));
  return machines;
}

void check_speeds(const RunConfig& config, std::span<const methods::ClientProfile> clients) {
  for (const auto& client : clients) {
    const auto& profile = profile_of(config, client.id);
    EK_CHECK(profile.knows(client.top_k), kConfig, "client_profiles.", config.plan(client.id).machine, ".top_k is [",
             join(profile.top_k), "], but ", config->clients.who(client.id), " trains with ", client.top_k,
             " experts per token, allowed: those measured and what lies between");
  }
}

/// Returns the number of a round's clients that do not drop out.
int64_t staying(const RunConfig& config, const std::vector<methods::ClientProfile>& drawn, int64_t round) {
  return std::count_if(drawn.begin(), drawn.end(), [&](const methods::ClientProfile& client) {
    return !machine_of(config, client.id).drops_out(round);
  });
}

/// Returns the fewest uploads of a round whose masks can be taken off; 0 without masks.
int64_t least_of_masked_sum(const RunConfig& config, int64_t drawn) {
  const auto& secure = config->secure_aggregation;
  return secure.mode == SecureMode::kMasks ? secure.threshold_of(drawn) : 0;
}

}  // namespace

void check_machines(const RunConfig& config, std::span<const methods::ClientProfile> clients) {
  if (!simulates_time(config)) return;
  check_speeds(config, clients);
  const bool all_stay = std::all_of(clients.begin(), clients.end(), [&](const methods::ClientProfile& client) {
    return profile_of(config, client.id).dropout == 0;
  });
  const int64_t foreseen =
      all_stay ? 0 : std::min(config->train.rounds, kMostSimulatedDropouts / config->clients.count);
  for (int64_t round = 0; round < foreseen; ++round) {
    const auto drawn =
        draw_round(clients, config->clients.participation, static_cast<uint64_t>(config->seed), round).participants;
    const int64_t left = staying(config, drawn, round);
    const int64_t quorum = config->clients.quorum, threshold = least_of_masked_sum(config, std::ssize(drawn));
    EK_CHECK(left >= std::max(quorum, threshold), kConfig, "in round ", round + 1, " only ", left, " of ", drawn.size(),
             " clients would not drop out, ", quorum < threshold ? "secure_aggregation.threshold" : "clients.quorum",
             " is ", std::max(quorum, threshold),
             ": another seed, more clients per round, or a lower quorum, threshold or dropout");
  }
}

RoundClock::RoundClock(const RunConfig& config, const methods::RoundView& round, const Snapshot& now)
    : config_(config),
      machines_(machines_of(config, round)),
      round_(round.round),
      start_(now.clock + opening_seconds(config, now.opening)) {}

bool RoundClock::drops_out(int64_t client) const {
  const auto machine = machines_.find(client);
  return machine != machines_.end() && machine->second.drops_out(round_);
}

SimulatedClient RoundClock::simulated(const methods::ClientProfile& client, const ClientRecord& record) const {
  const auto& machine = machines_.at(client.id);
  SimulatedClient times{.device = machine.name(),
                        .down = machine.down(record.bytes_down),
                        .train = machine.train(client.top_k, record.tokens),
                        .up = machine.up(record.bytes_up),
                        .start = start_};
  times.end = start_ + (times.down + times.train + times.up);
  return times;
}

/// Returns the seconds after which the round closes: the last arrival. If a client is missing or later than the
/// deadline, it is the deadline, or the arrival that completes the quorum if that is later.
double RoundClock::closing(std::vector<double> arrivals, bool missing) const {
  std::sort(arrivals.begin(), arrivals.end());
  const double last = arrivals.back(), deadline = config_->clients.deadline;
  if (deadline == 0 || (last <= deadline && !missing)) return last;
  const auto quorum = std::min(arrivals.size(), static_cast<size_t>(config_->clients.quorum));
  return std::max(deadline, arrivals[quorum - 1]);
}

std::vector<LostClient> RoundClock::close(const methods::RoundView& round, std::span<const ClientRecord> arrived,
                                          bool missing) {
  std::vector<double> arrivals;
  for (size_t i = 0; i < arrived.size(); ++i) {
    const auto& times = arrived_[arrived[i].id] = simulated(round.participants[i], arrived[i]);
    arrivals.push_back(times.down + times.train + times.up);
  }
  const double closing_at = closing(arrivals, missing);
  seconds_ = closing_at + config_->client_profiles.server_seconds;
  std::vector<LostClient> late;
  for (size_t i = 0; i < arrived.size(); ++i)
    if (arrivals[i] > closing_at)
      late.push_back({.id = arrived[i].id,
                      .name = config_->clients.name(arrived[i].id),
                      .reason = "late",
                      .bytes_down = arrived[i].bytes_down,
                      .simulated = arrived_.at(arrived[i].id)});
  return late;
}

void RoundClock::add_times(RoundRecord& record) const {
  if (!runs()) return;
  for (auto& client : record.clients) client.simulated = arrived_.at(client.id);
  record.simulated = SimulatedRound{.start = start_, .end = end(), .took = seconds_};
}

}  // namespace evenkeel::fed
