#include "fed/exchange/simulated_privacy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "base/plain/sha256.h"
#include "crypto/hkdf.h"
#include "privacy/accountant.h"

namespace evenkeel::fed {
namespace {

constexpr const char* kSteps = "privacy.steps";  // in a client's memory: its private steps so far

int64_t steps_before(const TensorMap& memory) {
  const auto known = memory.find(kSteps);
  return known == memory.end() ? 0 : known->second.item<int64_t>();
}

/// Returns a key that everybody who knows the config can compute.
crypto::Secret simulated_key(const RunConfig& config, const Task& task) {
  Sha256 digest;
  digest.update(concat("evenkeel simulated privacy ", config->seed));
  std::string info;
  crypto::append_be64(info, static_cast<uint64_t>(task.round));
  crypto::append_be64(info, static_cast<uint64_t>(task.client.id));
  return crypto::hkdf_expand(crypto::Secret(digest.bytes()), info);
}

}  // namespace

train::PrivateSteps SimulatedPrivacy::begin(const Task& task, const PrivateRound& round) {
  const auto& options = config_->privacy;
  const auto& train = config_->train;
  const int64_t asked = options.lot > 0 ? options.lot : train.rows_of_step();
  const auto lot = static_cast<double>(std::min(asked, round.rows));
  privacy::Event event{.noise = options.noise_multiplier, .sampling = lot / static_cast<double>(round.rows)};
  if (event.noise == 0)
    event.noise = privacy::least_noise(event.sampling, train.rounds * round.steps, {options.epsilon, options.delta});
  const int64_t steps = steps_before(round.memory) + round.steps;
  round.memory[kSteps] = at::full({1}, steps, at::kLong);
  privacy::Accountant account;
  account.add(event, steps);
  return {.draws = privacy::ExampleDraws(simulated_key(config_, task)),
          .report = {.noise = event.noise,
                     .clip = options.clip,
                     .sampling = event.sampling,
                     .epsilon = account.spent(options.delta).epsilon,
                     .delta = options.delta,
                     .simulated = true},
          .lot = lot};
}

}  // namespace evenkeel::fed
