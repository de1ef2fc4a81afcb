#include "fed/exchange/noisy_summand.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/error.h"

namespace evenkeel::fed {

double private_weight(const PrivacySection& privacy, const methods::ClientProfile& client) {
  if (privacy.weights == SumWeights::kUniform) return 1;
  const auto cap = static_cast<double>(privacy.weight_cap);
  return std::min(client.examples, cap) / cap;
}

at::Tensor change_of(const SummedLayout& layout, const methods::ClientUpdate& upload,
                     const lora::AdapterState& received) {
  auto change = at::empty({layout.values()}, at::kFloat);
  int64_t at = 0;
  for (const auto& part : layout.factors) {
    change.narrow(0, at, part.size).view(part.shape).copy_(change_of(part, upload, received));
    at += part.size;
  }
  return change;
}

secure::RingVector noisy_summand(const SummedLayout& layout, const TrainedPart& trained, const NoisySummand& how,
                                 ClientNoise& noise) {
  const auto& terms = how.terms;
  const auto& added = terms.noise.value();
  const auto change = change_of(layout, trained.upload, trained.received);
  const auto size = static_cast<size_t>(change.numel());
  auto clipped = privacy::clipped({change.const_data_ptr<float>(), size}, privacy::grid_of(layout.values(), added.clip),
                                  private_weight(how.privacy, how.task.client));
  const int64_t indicator = clipped.within ? privacy::kIndicatorStep : -privacy::kIndicatorStep;
  clipped.values.push_back(added.member.indicator > 0 ? indicator : 0);
  const auto key = noise.charge(how.task, terms, clipped.values);
  privacy::add_member_noise(clipped.values, added.member, key, how.run, how.task.round);
  const auto all = at::from_blob(clipped.values.data(), {layout.values() + 1}, at::kLong);
  return {.values = secure::narrowed(all.narrow(0, 0, layout.values()), terms.format().type()),
          .counts = all.narrow(0, layout.values(), 1).clone()};
}

}  // namespace evenkeel::fed
