#include "nn/kernels/layers/expert_slots.h"

#include <algorithm>
#include <numeric>

#include "base/plain/error.h"

namespace evenkeel::nn::kernels {
namespace {

constexpr int64_t kLittleWork = int64_t{1} << 20;  // multiply-adds of all experts

// The cost model, measured on a Zen 4. Reading the weights of an expert costs as much as kReading rows. Synchronising
// all threads inside an expert costs as much as kWaiting multiply-adds.
constexpr double kReading = 16, kWaiting = 1 << 25;

// Returns the time at which the last thread finishes if each thread takes the next expert when it is free.
double last_done(std::span<const double> experts, int64_t threads) {
  std::vector<double> done(static_cast<size_t>(threads), 0.0);
  for (const double expert : experts) *std::min_element(done.begin(), done.end()) += expert;
  return *std::max_element(done.begin(), done.end());
}

}  // namespace

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

int64_t ExpertSlots::data_parallel_experts(int64_t threads, int64_t work_per_slot) const {
  const auto count = static_cast<int64_t>(by_load.size());
  if (threads == 1 || work_per_slot * static_cast<int64_t>(token.size()) < kLittleWork) return count;
  std::vector<double> experts;
  for (const int64_t e : by_load) experts.push_back(static_cast<double>(rows(e)) + kReading);
  const double waiting = kWaiting / static_cast<double>(work_per_slot);
  const double fair = std::accumulate(experts.begin(), experts.end(), 0.0) / static_cast<double>(threads);
  int64_t best = 0;
  double soonest = last_done(experts, threads), before = 0;
  // `fair` is a lower bound: the time with perfectly even work.
  for (int64_t n = 1; n <= count && fair + static_cast<double>(n) * waiting < soonest; ++n) {
    before += experts[static_cast<size_t>(n - 1)] / static_cast<double>(threads) + waiting;
    const double all = before + last_done(std::span(experts).subspan(static_cast<size_t>(n)), threads);
    if (all >= soonest) continue;
    soonest = all;
    best = n;
  }
  return best;
}

}  // namespace evenkeel::nn::kernels
