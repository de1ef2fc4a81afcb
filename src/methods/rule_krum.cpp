// Krum: one upload in place of the mean, the one closest to its neighbours. Blanchard, El Mhamdi, Guerraoui, Stainer,
// "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017.
#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/plain/error.h"
#include "methods/rules.h"

namespace evenkeel::methods {
namespace {

class Krum : public CombiningRule {
 public:
  explicit Krum(size_t chosen) : chosen_(chosen) {}

  at::Tensor combine(const Parts& parts) const override {
    const auto& value = parts.values.at(chosen_);
    EK_CHECK(at::isfinite(value).all().item<bool>(), kNumeric, parts.who(chosen_), " holds a value that is not finite");
    return value.scalar_type() == at::kDouble ? value.clone() : value.to(at::kFloat, false, true);
  }

 private:
  const size_t chosen_;
};

}  // namespace

std::unique_ptr<CombiningRule> krum_rule(size_t chosen) { return std::make_unique<Krum>(chosen); }

size_t krum_choice(const std::vector<std::vector<double>>& distances, int64_t byzantine) {
  const auto closest = static_cast<int64_t>(distances.size()) - byzantine - 2;
  EK_CHECK(closest >= 1, kInternal, "aggregate: krum of ", distances.size(), " uploads with f = ", byzantine);
  std::vector<double> scores;
  for (size_t i = 0; i < distances.size(); ++i) {
    auto others = distances[i];
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    std::sort(others.begin(), others.end());
    scores.push_back(std::accumulate(others.begin(), others.begin() + closest, 0.0));
  }
  return static_cast<size_t>(std::min_element(scores.begin(), scores.end()) - scores.begin());
}

}  // namespace evenkeel::methods
