#include "nn/kernels/expert_slots.h"

#include "base/error.h"

namespace evenkeel::kernels {

ExpertSlots::ExpertSlots(std::span<const int64_t> experts, int64_t top_k, int64_t num_experts)
    : offsets(static_cast<size_t>(num_experts + 1), 0),
      token(experts.size()),
      choice(experts.size()),
      slot_of(experts.size()) {
  for (const int64_t e : experts) {
    EK_CHECK(e >= 0 && e < num_experts, kShape, "experts: expert ", e, " was chosen, there are ", num_experts);
    ++offsets[static_cast<size_t>(e + 1)];
  }
  for (size_t e = 1; e < offsets.size(); ++e) offsets[e] += offsets[e - 1];
  std::vector<int64_t> next(offsets.begin(), offsets.end() - 1);
  for (size_t i = 0; i < experts.size(); ++i) {
    const int64_t slot = next[static_cast<size_t>(experts[i])]++;
    choice[static_cast<size_t>(slot)] = static_cast<int64_t>(i);
    token[static_cast<size_t>(slot)] = static_cast<int64_t>(i) / top_k;
    slot_of[i] = slot;
  }
  for (int64_t e = 0; e < num_experts; ++e)
    if (rows(e) > 0) by_load.push_back(e);
  std::stable_sort(by_load.begin(), by_load.end(), [&](int64_t l, int64_t r) { return rows(l) > rows(r); });
}

}  // namespace evenkeel::kernels
