// The trimmed mean, value by value. Yin, Chen, Kannan, Bartlett, "Byzantine-Robust Distributed Learning: Towards
// Optimal Statistical Rates", ICML 2018, arXiv:1803.01498.
#include "base/plain/error.h"
#include "methods/rules.h"
#include "methods/sorted_values.h"

namespace evenkeel::methods {
namespace {

class TrimmedMean : public CombiningRule {
 public:
  explicit TrimmedMean(int64_t trimmed) : trimmed_(static_cast<size_t>(trimmed)) {}

  at::Tensor combine(const Parts& parts) const override {
    EK_CHECK(parts.values.size() > 2 * trimmed_, kData, "aggregate: the trimmed mean leaves out ", 2 * trimmed_, " of ",
             parts.values.size(), " uploads");
    return by_sorted_values(parts, [this](std::span<const WeightedValue> column) {
      double sum = 0, weights = 0;
      for (const auto& [value, weight] : column.subspan(trimmed_, column.size() - 2 * trimmed_)) {
        sum += weight * value;
        weights += weight;
      }
      return sum / weights;
    });
  }

 private:
  const size_t trimmed_;
};

}  // namespace

std::unique_ptr<CombiningRule> trimmed_mean_rule(int64_t trimmed) { return std::make_unique<TrimmedMean>(trimmed); }

}  // namespace evenkeel::methods
