#include "report/score_cells.h"

#include <array>
#include <cstdio>

#include "base/plain/error.h"
#include "base/plain/number_text.h"

namespace evenkeel::report {

std::string head_of(const scoring::Measure& measure) {
  return concat(measure.short_title, measure.is_share ? " %" : "");
}

std::string measure_cell(std::optional<double> value, const scoring::Measure& measure) {
  if (!value) return "-";
  if (measure.is_share) return fixed(100 * *value, 1);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", *value);
  return text.data();
}

std::optional<double> mean_of(std::span<const scoring::TaskScore* const> scores, const scoring::Measure& measure) {
  double sum = 0;
  for (const auto* score : scores) {
    const auto value = measure.of(*score);
    if (!value) return std::nullopt;
    sum += *value;
  }
  return scores.empty() ? std::nullopt : std::optional(sum / static_cast<double>(scores.size()));
}

}  // namespace evenkeel::report
