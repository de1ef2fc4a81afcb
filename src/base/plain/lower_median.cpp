#include "base/plain/lower_median.h"

#include <algorithm>
#include <cstddef>

namespace evenkeel {

double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace evenkeel
