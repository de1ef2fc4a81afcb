#include "comparison/conclusion.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/plain/error.h"
#include "base/plain/number_text.h"

namespace evenkeel::comparison {
namespace {

constexpr double kLevel = 0.05;

/// Returns a text such as "0.125 (+0.031, better)".
std::string shown_at(const PairedDifference& difference, const scoring::Measure& measure) {
  const bool higher = *difference.mean > 0;
  return concat(difference.budget, " (", higher ? "+" : "", size_text(*difference.mean, measure),
                higher == measure.higher_is_better ? ", better)" : ", worse)");
}

/// Returns a text such as "differences below 0.031 could not have been detected", for one budget or a range of budgets.
std::string undetectable(std::span<const PairedDifference> differences, const scoring::Measure& measure) {
  std::vector<double> sizes;
  for (const auto& difference : differences)
    if (difference.detectable) sizes.push_back(*difference.detectable);
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  const auto low = size_text(*least, measure), high = size_text(*most, measure);
  return concat("differences below ", low, low == high ? "" : concat(" to ", high, ", by budget,"),
                " could not have been detected");
}

bool is_zero(const PairedDifference& difference) {
  return std::all_of(difference.by_seed.begin(), difference.by_seed.end(), [](double value) { return value == 0; });
}

std::string budgets_text(std::span<const PairedDifference> differences) {
  std::vector<std::string> budgets;
  for (const auto& difference : differences) budgets.push_back(concat(difference.budget));
  return concat(budgets.size() > 1 ? "budgets " : "budget ", join(budgets));
}

std::vector<PairedDifference> chosen(std::span<const PairedDifference> all, bool tested, bool shown) {
  std::vector<PairedDifference> some;
  for (const auto& difference : all)
    if (difference.p_holm.has_value() == tested && is_shown(difference) == shown) some.push_back(difference);
  return some;
}

std::string none_shown(const std::string& pair, std::span<const PairedDifference> open, bool everywhere,
                       const scoring::Measure& measure) {
  if (std::all_of(open.begin(), open.end(), is_zero))
    return concat(pair, " is 0 in every pair", everywhere ? "" : concat(" at ", budgets_text(open)));
  return concat("no ", pair, " was shown at ", everywhere ? "any budget" : budgets_text(open), "; ",
                undetectable(open, measure));
}

/// Says that a difference cannot be tested, and why.
std::string untested_text(const std::string& pair, std::span<const PairedDifference> untested, bool everywhere,
                          const scoring::Measure& measure) {
  std::vector<std::string> alike;
  std::vector<PairedDifference> few;
  for (const auto& difference : untested)
    if (are_alike(difference.by_seed))
      alike.push_back(shown_at(difference, measure));
    else
      few.push_back(difference);
  std::vector<std::string> parts;
  if (!alike.empty())
    parts.push_back(
        concat("the ", pair, " is the same in every pair at budget ", join(alike), ", which no t-test can judge"));
  if (!few.empty())
    parts.push_back(concat("nothing can be said of the ", pair, " at ",
                           everywhere && alike.empty() ? "any budget" : budgets_text(few),
                           ": fewer than two seeds are complete in both"));
  return join(parts, "; ");
}

/// Returns a text such as "they also differ in gating (renormalised; fedit: not renormalised)"; empty if they do not.
std::string function_text(const ArmResult& arm) {
  std::vector<std::string> all;
  for (const auto& [what, own, others] : arm.unlike)
    all.push_back(concat(what, " (", own, "; ", arm.reference, ": ", others, ")"));
  return all.empty() ? "" : concat("the two also differ in ", join(all));
}

std::string capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace

bool is_shown(const PairedDifference& difference) { return difference.p_holm && *difference.p_holm < kLevel; }

std::string value_text(double value, const scoring::Measure& measure, int decimals) {
  return fixed(measure.is_share ? 100 * value : value, decimals);
}

std::string size_text(double value, const scoring::Measure& measure) {
  const double scaled = measure.is_share ? 100 * value : value;
  const int digits = scaled == 0 ? 1 : 1 - static_cast<int>(std::floor(std::log10(std::abs(scaled))));
  return fixed(scaled, std::clamp(digits, 0, 6)) + (measure.is_share ? " points" : "");
}

std::string conclusion(const ArmResult& arm, const scoring::Measure& measure) {
  const auto pair = concat("difference of ", arm.label, " to ", arm.reference);
  const auto shown = chosen(arm.differences, true, true), open = chosen(arm.differences, true, false),
             untested = chosen(arm.differences, false, false);
  std::vector<std::string> parts;
  if (!shown.empty()) {
    std::vector<std::string> budgets;
    for (const auto& difference : shown) budgets.push_back(shown_at(difference, measure));
    parts.push_back(concat("a ", pair, " was shown at budget ", join(budgets)));
  }
  if (!open.empty()) parts.push_back(none_shown(pair, open, shown.empty() && untested.empty(), measure));
  if (!untested.empty()) parts.push_back(untested_text(pair, untested, shown.empty() && open.empty(), measure));
  if (auto unlike = function_text(arm); !unlike.empty()) parts.push_back(std::move(unlike));
  return capitalised(join(parts, "; ")) + '.';
}

}  // namespace evenkeel::comparison
