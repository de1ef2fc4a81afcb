// The median, value by value. Yin, Chen, Kannan, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
// Statistical Rates", ICML 2018, arXiv:1803.01498.
#include "methods/rules.h"
#include "methods/sorted_values.h"

namespace evenkeel::methods {
namespace {

class Median : public CombiningRule {
 public:
  at::Tensor combine(const Parts& parts) const override {
    return by_sorted_values(parts, [](std::span<const WeightedValue> column) {
      const size_t n = column.size();
      return (column[(n - 1) / 2].first + column[n / 2].first) / 2;
    });
  }
};

}  // namespace

std::unique_ptr<CombiningRule> median_rule() { return std::make_unique<Median>(); }

}  // namespace evenkeel::methods
