/// \file  `[client_profiles]`: machines that clients are imagined to run on, and what a round takes on one, in
/// simulated seconds. A speed is a table of tokens per second by K, experts per token, as `evenkeel doctor
/// --client-profile` measures it; a connection is its rates and its latency.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_table.h"
#include "base/random/random.h"

namespace evenkeel {

enum class SpreadKind {
  kNone,       ///< 1
  kLogNormal,  ///< exp(sigma z), z normal: half of all factors below 1
  kUniform,    ///< U[low, high)
};
constexpr auto names(SpreadKind) {
  return std::array{config::EnumName<SpreadKind>{"none", SpreadKind::kNone},
                    config::EnumName<SpreadKind>{"log-normal", SpreadKind::kLogNormal},
                    config::EnumName<SpreadKind>{"uniform", SpreadKind::kUniform}};
}

/// How far machines of one kind lie apart: a factor that each client has of its own.
struct Spread {
  SpreadKind distribution = SpreadKind::kNone;
  double sigma = 0.5;
  double low = 0.5, high = 2.0;
  void visit(auto& field) {
    field("distribution", distribution, "of each client's own factor: none (1), log-normal (median 1), uniform");
    field("sigma", sigma, "log-normal: standard deviation of the factor's logarithm, 0 or more");
    field("low", low, "uniform: the least factor, > 0");
    field("high", high, "uniform: the largest factor, low or more");
  }
  void resolve(const config::Table& table) const;
  double draw(RandomStream stream) const;
};

struct MachineProfile {
  std::vector<int64_t> top_k;
  std::vector<double> tokens_per_second;
  double down_mbit = 0, up_mbit = 0, latency = 0, dropout = 0;
  Spread speed_factor, network_factor;
  void visit(auto& field) {
    field("top_k", top_k, "K, experts per token, that were measured, in rising order; empty: one speed for every K");
    field("tokens_per_second", tokens_per_second, "training speed at each of them, tokens per second");
    field("down_mbit", down_mbit, "rate to the client, Mbit/s (10^6 bits per second); 0: it takes no time");
    field("up_mbit", up_mbit, "rate from the client, likewise");
    field("latency", latency, "seconds until a message begins to arrive, each way");
    field("dropout", dropout, "probability per round that a client takes its task and never replies, in [0, 1)");
    field("speed_factor", speed_factor, "");
    field("network_factor", network_factor, "");
  }
  void resolve(const config::Table& table) const;
  /// Whether the table says how fast K is: at a measured K, or between two.
  bool knows(int64_t k) const;
  /// Between two measured K's, on the straight line: what a token costs grows with its experts. REQUIRES knows(k).
  double seconds_per_token(int64_t k) const;
};

/// Of letters, digits, - and _, up to 64: it stands in tables and in TOML.
bool is_profile_name(std::string_view name);

struct ClientProfilesSection {
  double server_seconds = 0;
  std::map<std::string, MachineProfile> profiles;
  void visit(auto& field) {
    field("server_seconds", server_seconds, "simulated seconds of the server per round, beside its clients'");
    field.tables(profiles, MachineProfile{});
  }
  void resolve(const config::Table& table) const;
};

/// The machine of one client: its profile and its own factors, drawn from (seed, client).
class SimulatedMachine {
 public:
  /// Borrows the profile. \param name  of the profile
  SimulatedMachine(std::string name, const MachineProfile& profile, uint64_t seed, int64_t client);

  const std::string& name() const { return name_; }
  const MachineProfile& profile() const { return profile_; }
  /// Seconds. REQUIRES, of the first, a K that the profile knows.
  double train(int64_t k, int64_t tokens) const;
  double down(int64_t bytes) const;
  double up(int64_t bytes) const;
  /// Whether the client takes its task of `round` and never replies: by (seed, round, client) alone.
  bool drops_out(int64_t round) const;

 private:
  std::string name_;
  const MachineProfile& profile_;
  uint64_t seed_;
  int64_t client_;
  double speed_, network_;
};

}  // namespace evenkeel
