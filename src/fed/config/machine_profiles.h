/// \file  Defines `[client_profiles]`: profiles of simulated machines. They give the simulated time of a round. The
/// speed of a profile is a table of tokens per second by K (experts per token), as `evenkeel doctor --client-profile`
/// measures it. A connection has a rate per direction and a latency.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_table.h"
#include "base/random/random.h"

namespace evenkeel::fed {

/// Distribution of a factor that is drawn for each machine of a profile.
enum class SpreadKind {
  kNone,       ///< the factor is 1
  kLogNormal,  ///< exp(sigma z) with z standard normal; the median is 1
  kUniform,    ///< uniform in [low, high)
};
constexpr auto names(SpreadKind) {
  return std::array{config::EnumName<SpreadKind>{"none", SpreadKind::kNone},
                    config::EnumName<SpreadKind>{"log-normal", SpreadKind::kLogNormal},
                    config::EnumName<SpreadKind>{"uniform", SpreadKind::kUniform}};
}

/// The variation between machines of one profile: each client's speed or rate is multiplied by a factor of its own.
struct Spread {
  SpreadKind distribution = SpreadKind::kNone;
  double sigma = 0.5;
  double low = 0.5, high = 2.0;
  void visit(auto& field) {
    field("distribution", distribution,
          "distribution of a factor that is drawn per client: none (1), log-normal (median 1) or uniform");
    field("sigma", sigma, "log-normal: standard deviation of the factor's logarithm, 0 or more");
    field("low", low, "uniform: smallest factor, > 0");
    field("high", high, "uniform: largest factor, low or more");
  }
  void resolve(const config::Table& table) const;
  /// Draws a factor.
  double draw(RandomStream stream) const;
};

/// One profile: speeds, connection and drop-out rate.
struct MachineProfile {
  std::vector<int64_t> top_k;
  std::vector<double> tokens_per_second;
  double down_mbit = 0, up_mbit = 0, latency = 0, dropout = 0;
  Spread speed_factor, network_factor;
  void visit(auto& field) {
    field("top_k", top_k,
          "measured numbers of experts per token (K), in rising order; empty: the same speed for every K");
    field("tokens_per_second", tokens_per_second, "training speed for each entry of top_k, in tokens per second");
    field("down_mbit", down_mbit,
          "download rate of the client in Mbit/s (10^6 bits per second); 0: downloads take no time");
    field("up_mbit", up_mbit, "upload rate of the client in Mbit/s; 0: uploads take no time");
    field("latency", latency, "delay in seconds before a message arrives, in each direction");
    field("dropout", dropout, "probability per round that a client gets its task and never replies, in [0, 1)");
    field("speed_factor", speed_factor, "");
    field("network_factor", network_factor, "");
  }
  void resolve(const config::Table& table) const;
  /// Returns true if `k` is within the measured range, or if one speed holds for every K.
  bool knows(int64_t k) const;
  /// Returns the seconds per token at `k`, interpolated linearly between measured K's. REQUIRES knows(k)
  double seconds_per_token(int64_t k) const;
};

/// Returns true if `name` consists of 1 to 64 ASCII letters, digits, - and _. Profile names appear in tables and TOML
/// keys.
bool is_profile_name(std::string_view name);

/// `[client_profiles]`: the profiles by name. visit() documents the keys.
struct ClientProfilesSection {
  double server_seconds = 0;
  std::map<std::string, MachineProfile> profiles;
  void visit(auto& field) {
    field("server_seconds", server_seconds, "simulated seconds of the server per round, added to those of the clients");
    field.tables(profiles, MachineProfile{});
  }
  void resolve(const config::Table& table) const;
};

/// The simulated machine of one client: its profile, and its own factors drawn from (seed, client).
class SimulatedMachine {
 public:
  /// Borrows the profile. \param name  the profile's name
  SimulatedMachine(std::string name, const MachineProfile& profile, uint64_t seed, int64_t client);

  const std::string& name() const { return name_; }
  const MachineProfile& profile() const { return profile_; }
  /// Return simulated seconds of training, of a download and of an upload. train() REQUIRES profile().knows(k)
  double train(int64_t k, int64_t tokens) const;
  double down(int64_t bytes) const;
  double up(int64_t bytes) const;
  /// Returns true if the client drops out of `round`. Depends only on (seed, round, client).
  bool drops_out(int64_t round) const;

 private:
  std::string name_;
  const MachineProfile& profile_;
  uint64_t seed_;
  int64_t client_;
  double speed_, network_;
};

}  // namespace evenkeel::fed
