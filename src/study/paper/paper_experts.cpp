#include "study/paper/paper_experts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/text.h"
#include "comparison/statistics.h"
#include "records/phi_correlation.h"

namespace evenkeel::study {
namespace {

constexpr std::string_view kAlignment = "pg_cosine", kAlignmentFile = "pg-alignment.jsonl", kAllLayers = "all";

using RoundMeasure = std::optional<double> (*)(const fed::RoundRecord& round);

template <auto kMember>
std::optional<double> of_experts(const fed::RoundRecord& round) {
  return round.experts ? std::optional<double>((*round.experts).*kMember) : std::nullopt;
}

/// Returns the standard deviation over layers, over n as `entropy_std` of the record.
std::optional<double> gini_std(const fed::RoundRecord& round) {
  if (!round.experts || round.experts->gini.empty()) return std::nullopt;
  const auto& gini = round.experts->gini;
  const double mean = comparison::mean_of(gini);
  double sum = 0;
  for (const double value : gini) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(gini.size()));
}

template <auto kMember>
std::optional<double> of_phi(const fed::RoundRecord& round) {
  const auto phi_LE = records::phi_of(round);
  if (phi_LE.empty()) return std::nullopt;
  return records::phi_correlation(phi_LE, round.experts->utilization).*kMember;
}

const std::map<std::string_view, RoundMeasure>& round_measures() {
  static const std::map<std::string_view, RoundMeasure> kMeasures{
      {"entropy_joint", of_experts<&fed::ExpertUse::entropy_joint>},
      {"entropy", of_experts<&fed::ExpertUse::entropy_mean>},
      {"entropy_std", of_experts<&fed::ExpertUse::entropy_std>},
      {"gini", of_experts<&fed::ExpertUse::gini_mean>},
      {"gini_std", gini_std},
      {"pearson", of_phi<&records::PhiCorrelation::pearson>},
      {"spearman", of_phi<&records::PhiCorrelation::spearman>},
      {"slope", of_phi<&records::PhiCorrelation::slope>}};
  return kMeasures;
}

/// Returns the first number in the name of a layer: 5 of "model.layers.5.mlp".
std::string layer_number(std::string_view layer) {
  const auto first = layer.find_first_of("0123456789");
  if (first == layer.npos) return std::string(layer);
  return std::string(layer.substr(first, layer.find_first_not_of("0123456789", first) - first));
}

/// Returns the entropy or Gini coefficient of one layer.
std::optional<double> of_layer(const records::RunRecords& run, std::string_view measure, std::string_view number) {
  if (run.rounds.empty() || !run.rounds.back().experts) return std::nullopt;
  const auto& use = *run.rounds.back().experts;
  const auto& values = measure == "gini" ? use.gini : use.entropy;
  for (size_t i = 0; i < std::min(values.size(), use.layers.size()); ++i)
    if (layer_number(use.layers[i]) == number) return values[i];
  return std::nullopt;
}

std::optional<double> of_round(const records::RunRecords& run, RoundMeasure measure, int64_t number) {
  for (const auto& round : run.rounds)
    if (round.round == number) return measure(round);
  return std::nullopt;
}

std::optional<double> change(const records::RunRecords& run, RoundMeasure measure) {
  if (run.rounds.size() < 2) return std::nullopt;
  const auto first = measure(run.rounds.front()), last = measure(run.rounds.back());
  return first && last ? std::optional(*last - *first) : std::nullopt;
}

/// Reads the cosine of a layer, or of all.
std::optional<double> cosine(const records::RunRecords& run, const std::string& number) {
  const auto file = run.folder / kAlignmentFile;
  if (!is_file(file)) return std::nullopt;
  std::istringstream lines(read_file(file));
  int64_t line = 0;
  for (std::string text; std::getline(lines, text);) {
    const auto origin = concat(file.string(), ", line ", ++line);
    const auto record = parse_json(text, origin);
    const JsonView view(record, origin, kData);
    const auto layer = view.at("layer").string();
    const bool is_it = number.empty() ? layer == kAllLayers : layer != kAllLayers && layer_number(layer) == number;
    const auto value = view.at("cosine");
    if (is_it && !record["cosine"].is_null()) return value.number();
  }
  return std::nullopt;
}

/// A name in its parts: "gini layer 5" as gini, layer, 5.
struct NameParts {
  std::string measure, of, number;
};

NameParts parts_of(std::string_view name) {
  const auto first = name.find(' ');
  if (first == name.npos) return {std::string(name), {}, {}};
  const auto rest = name.substr(first + 1);
  const auto second = rest.find(' ');
  return {std::string(name.substr(0, first)), std::string(rest.substr(0, second)),
          second == rest.npos ? std::string() : std::string(rest.substr(second + 1))};
}

}  // namespace

ExpertMeasure expert_measure(std::string_view name) {
  const auto [measure, of, number] = parts_of(name);
  if (measure == kAlignment && (of.empty() || of == "layer"))
    return [number = number](const records::RunRecords& run) { return cosine(run, number); };
  const auto found = round_measures().find(measure);
  if (found == round_measures().end()) return {};
  const auto of_one = found->second;
  if (of.empty())
    return [of_one](const records::RunRecords& run) {
      return run.rounds.empty() ? std::nullopt : of_one(run.rounds.back());
    };
  if (of == "change") return [of_one](const records::RunRecords& run) { return change(run, of_one); };
  if (of == "round") {
    const int64_t round = parse_number<int64_t>(number).value_or(0);
    return [of_one, round](const records::RunRecords& run) { return of_round(run, of_one, round); };
  }
  if (of != "layer" || (measure != "gini" && measure != "entropy")) return {};
  return
      [measure = measure, number = number](const records::RunRecords& run) { return of_layer(run, measure, number); };
}

std::vector<std::string> expert_layers(const records::RunRecords& run) {
  std::vector<std::string> names;
  if (run.rounds.empty() || !run.rounds.back().experts) return names;
  for (const auto& layer : run.rounds.back().experts->layers) names.push_back("layer " + layer_number(layer));
  return names;
}

std::vector<std::string> rounds_of(const records::RunRecords& run) {
  std::vector<std::string> names;
  for (const auto& round : run.rounds) names.push_back(concat("round ", round.round));
  return names;
}

}  // namespace evenkeel::study
