#include "fed/config/machine_profiles.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace evenkeel::fed {
namespace {

constexpr double kMbitPerByte = 8e-6;

/// Returns the seconds of a transfer. \param mbit  Mbit/s; 0: no limit
double transfer(int64_t bytes, double mbit, double factor, double latency) {
  return latency + (mbit > 0 ? kMbitPerByte * static_cast<double>(bytes) / (mbit * factor) : 0);
}

}  // namespace

void Spread::resolve(const config::Table& table) const {
  table.check_from_zero("sigma", sigma);
  table.check_above_zero("low", low);
  table.check_above_zero("high", high);
  table.check(high >= low, "high", high, concat("low = ", low, " or more"));
  const Spread defaults;  // are accepted, because settled configs contain them
  const auto check_used = [&](std::string_view key, double Spread::*value, SpreadKind kind) {
    table.check(distribution == kind || this->*value == defaults.*value, key, this->*value,
                concat("with distribution = \"", config::name_of(kind), "\" only"));
  };
  check_used("sigma", &Spread::sigma, SpreadKind::kLogNormal);
  check_used("low", &Spread::low, SpreadKind::kUniform);
  check_used("high", &Spread::high, SpreadKind::kUniform);
}

double Spread::draw(RandomStream stream) const {
  if (distribution == SpreadKind::kLogNormal) return std::exp(sigma * stream.normal());
  return distribution == SpreadKind::kUniform ? low + (high - low) * stream.uniform() : 1.0;
}

void MachineProfile::resolve(const config::Table& table) const {
  table.check(!tokens_per_second.empty(), "tokens_per_second", "empty",
              "one speed per entry of top_k, or a single one");
  for (const double speed : tokens_per_second) table.check_above_zero("tokens_per_second", speed);
  const size_t speeds = std::max<size_t>(1, top_k.size());
  table.check(tokens_per_second.size() == speeds, "tokens_per_second", concat("[", join(tokens_per_second), "]"),
              concat("as many as top_k has, ", speeds));
  for (size_t i = 0; i < top_k.size(); ++i)
    table.check(top_k[i] > (i == 0 ? 0 : top_k[i - 1]), "top_k", concat("[", join(top_k), "]"),
                "1 or more, in rising order");
  table.check_from_zero("down_mbit", down_mbit);
  table.check_from_zero("up_mbit", up_mbit);
  table.check_from_zero("latency", latency);
  table.check(dropout >= 0 && dropout < 1, "dropout", dropout, "0 or more, less than 1");
}

bool MachineProfile::knows(int64_t k) const { return top_k.empty() || (k >= top_k.front() && k <= top_k.back()); }

double MachineProfile::seconds_per_token(int64_t k) const {
  if (top_k.empty()) return 1 / tokens_per_second[0];
  const auto at = std::lower_bound(top_k.begin(), top_k.end(), k) - top_k.begin();
  const auto high = static_cast<size_t>(at);
  if (top_k[high] == k) return 1 / tokens_per_second[high];
  const auto low = high - 1;
  const double part = static_cast<double>(k - top_k[low]) / static_cast<double>(top_k[high] - top_k[low]);
  return (1 - part) / tokens_per_second[low] + part / tokens_per_second[high];
}

bool is_profile_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
}

void ClientProfilesSection::resolve(const config::Table& table) const {
  table.check_from_zero("server_seconds", server_seconds);
  for (const auto& [name, profile] : profiles)
    EK_CHECK(is_profile_name(name), kConfig, table.full_key(name),
             ": the name of a profile is of letters, digits, - and _, up to 64", table.place_of(name));
}

SimulatedMachine::SimulatedMachine(std::string name, const MachineProfile& profile, uint64_t seed, int64_t client)
    : name_(std::move(name)),
      profile_(profile),
      seed_(seed),
      client_(client),
      speed_(profile.speed_factor.draw({seed, "device-speed", static_cast<uint64_t>(client)})),
      network_(profile.network_factor.draw({seed, "device-network", static_cast<uint64_t>(client)})) {}

double SimulatedMachine::train(int64_t k, int64_t tokens) const {
  return profile_.seconds_per_token(k) * static_cast<double>(tokens) / speed_;
}

double SimulatedMachine::down(int64_t bytes) const {
  return transfer(bytes, profile_.down_mbit, network_, profile_.latency);
}

double SimulatedMachine::up(int64_t bytes) const {
  return transfer(bytes, profile_.up_mbit, network_, profile_.latency);
}

bool SimulatedMachine::drops_out(int64_t round) const {
  if (profile_.dropout == 0) return false;
  RandomStream stream(seed_, "dropout", static_cast<uint64_t>(round), static_cast<uint64_t>(client_));
  return stream.uniform() < profile_.dropout;
}

}  // namespace evenkeel::fed
