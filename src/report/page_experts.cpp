#include <algorithm>
#include <set>

#include "comparison/curves.h"
#include "records/phi_correlation.h"
#include "report/page_parts.h"

namespace evenkeel::report::page {
namespace {

constexpr size_t kMaxFrames = 60;  // rounds the heat map can show: a long run is thinned, first and last stay
constexpr size_t kMaxMaps = 8;
constexpr int kMapDigits = 4;  // a heat map needs no more

using Matrix = std::vector<std::vector<double>>;

bool shows_frame(size_t index, size_t count) {
  if (count <= kMaxFrames || index == 0 || index + 1 == count) return true;
  return index * kMaxFrames / count != (index - 1) * kMaxFrames / count;
}

OrderedJson matrix_json(const Matrix& values_LE) {
  OrderedJson layers = OrderedJson::array();
  for (const auto& values_E : values_LE) {
    auto& layer = layers.emplace_back(OrderedJson::array());
    for (const double value : values_E) layer.push_back(rounded(value, kMapDigits));
  }
  return layers;
}

/// Returns one - other; nothing if their shapes differ.
std::optional<Matrix> minus(Matrix one_LE, const Matrix& other_LE) {
  if (one_LE.size() != other_LE.size()) return std::nullopt;
  for (size_t l = 0; l < one_LE.size(); ++l) {
    if (one_LE[l].size() != other_LE[l].size()) return std::nullopt;
    for (size_t e = 0; e < one_LE[l].size(); ++e) one_LE[l][e] -= other_LE[l][e];
  }
  return one_LE;
}

std::vector<const fed::RoundRecord*> frames_of(const records::RunRecords& run) {
  std::vector<const fed::RoundRecord*> frames;
  for (size_t i = 0; i < run.rounds.size(); ++i)
    if (run.rounds[i].experts && shows_frame(i, run.rounds.size())) frames.push_back(&run.rounds[i]);
  return frames;
}

/// Returns the record of a round, or null.
const fed::RoundRecord* round_of(const records::RunRecords& run, int64_t round) {
  const auto found = std::find_if(run.rounds.begin(), run.rounds.end(),
                                  [&](const fed::RoundRecord& one) { return one.round == round && one.experts; });
  return found == run.rounds.end() ? nullptr : &*found;
}

/// Returns the first run of an arm that has maps, or null.
const records::RunRecords* first_with_maps(const Source& source, const std::string& arm) {
  for (const auto* run : comparison::runs_of(source.study, arm))
    if (!frames_of(*run).empty()) return run;
  return nullptr;
}

struct Mapped {
  std::string arm;
  const records::RunRecords* run;
};

/// Returns one run of each of the first arms, the reference first.
std::vector<Mapped> mapped_runs(const Source& source) {
  std::vector<Mapped> all;
  for (const auto& arm : source.study.arms) {
    const auto* run = first_with_maps(source, arm);
    if (run != nullptr) all.insert(arm == source.study.reference ? all.begin() : all.end(), {arm, run});
  }
  if (all.size() > kMaxMaps) all.resize(kMaxMaps);
  return all;
}

OrderedJson map_json(const Source& source, const Mapped& mapped, const records::RunRecords& first) {
  OrderedJson frames = OrderedJson::array();
  for (const auto* frame : frames_of(*mapped.run)) {
    OrderedJson json{{"round", frame->round}, {"utilization", matrix_json(frame->experts->utilization)}};
    const auto* base = mapped.run == &first ? nullptr : round_of(first, frame->round);
    if (base != nullptr)
      if (const auto difference = minus(frame->experts->utilization, base->experts->utilization))
        json["minus_first"] = matrix_json(*difference);
    frames.push_back(std::move(json));
  }
  return {{"arm", source.index(mapped.arm)}, {"label", mapped.run->label}, {"frames", std::move(frames)}};
}

/// Returns phi and the utilisation of every expert after the last round, with their association.
OrderedJson phi_json(const Source& source, const Mapped& mapped) {
  for (auto round = mapped.run->rounds.rbegin(); round != mapped.run->rounds.rend(); ++round) {
    const auto phi_LE = records::phi_of(*round);
    if (phi_LE.empty()) continue;
    const auto found = records::phi_correlation(phi_LE, round->experts->utilization);
    return {{"arm", source.index(mapped.arm)},
            {"label", mapped.run->label},
            {"round", round->round},
            {"phi", matrix_json(phi_LE)},
            {"utilization", matrix_json(round->experts->utilization)},
            {"pearson", rounded(found.pearson)},
            {"spearman", rounded(found.spearman)},
            {"slope", rounded(found.slope)},
            {"intercept", rounded(found.intercept)}};
  }
  return {};
}

}  // namespace

OrderedJson experts_json(const Source& source) {
  OrderedJson json{{"maps", OrderedJson::array()}, {"phi", OrderedJson::array()}};
  const auto mapped = mapped_runs(source);
  for (const auto& one : mapped) {
    json["maps"].push_back(map_json(source, one, *mapped.front().run));
    if (auto phi = phi_json(source, one); !phi.is_null()) json["phi"].push_back(std::move(phi));
  }
  return json;
}

}  // namespace evenkeel::report::page
