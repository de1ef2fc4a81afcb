#include "report/page.h"

#include <cmath>
#include <numeric>

#include "base/plain/files.h"
#include "comparison/differences.h"
#include "records/client_costs.h"
#include "records/phi_correlation.h"
#include "report/assets.h"

namespace evenkeel::report {
namespace {

constexpr size_t kMaxFrames = 60;  // rounds the heat map can show: a long run is thinned, first and last stay

/// Rounds to four significant digits, to keep pages small. A heat map needs no more.
double rounded(double number) {
  if (number == 0) return number;
  const double unit = std::pow(10.0, 3 - std::floor(std::log10(std::abs(number))));
  return std::round(number * unit) / unit;
}

bool shows_frame(size_t index, size_t count) {
  if (count <= kMaxFrames || index == 0 || index + 1 == count) return true;
  return index * kMaxFrames / count != (index - 1) * kMaxFrames / count;
}

OrderedJson rounded(const std::vector<std::vector<double>>& values_LE) {
  OrderedJson layers = OrderedJson::array();
  for (const auto& values_E : values_LE) {
    auto& layer = layers.emplace_back(OrderedJson::array());
    for (const double value : values_E) layer.push_back(rounded(value));
  }
  return layers;
}

/// Adds the utilisation of experts, and phi if the method has it. Only a frame has the values of each expert.
void add_experts(OrderedJson& out, const fed::RoundRecord& round, bool frame) {
  const auto& use = *round.experts;
  out["entropy_mean"] = use.entropy_mean;
  out["gini_mean"] = use.gini_mean;
  out["dead_experts"] = std::accumulate(use.dead_experts.begin(), use.dead_experts.end(), int64_t{0});
  if (frame) out["utilization"] = rounded(use.utilization);
  const auto phi_LE = records::phi_of(round);
  if (phi_LE.empty()) return;
  out["phi_correlation"] = record::write(records::phi_correlation(phi_LE, use.utilization));
  if (frame) out["phi"] = rounded(phi_LE);
}

/// The data of a round that page.js draws.
OrderedJson round_json(const fed::RoundRecord& round, bool frame) {
  OrderedJson out = {{"round", round.round},
                     {"loss", round.loss},
                     {"tokens", round.tokens},
                     {"bytes_up", round.bytes_up},
                     {"bytes_down", round.bytes_down},
                     {"bytes_up_parts", round.bytes_up_parts},
                     {"bytes_down_parts", round.bytes_down_parts},
                     {"flops", round.flops},
                     {"experts_per_token", round.experts_per_token},
                     {"metrics", round.metrics}};
  if (round.seconds.round) out["wall"] = *round.seconds.round;
  if (round.simulated) out["seconds"] = round.simulated->end;
  if (round.experts) add_experts(out, round, frame);
  return out;
}

/// Returns what training cost the clients of each budget.
OrderedJson costs_json(const records::RunRecords& run) {
  OrderedJson costs = OrderedJson::array();
  for (const auto& cost : records::client_costs(run))
    costs.push_back({{"budget", cost.budget},
                     {"top_k", cost.top_k},
                     {"tokens", cost.tokens},
                     {"flops", cost.flops},
                     {"seconds", cost.seconds},
                     {"timed_tokens", cost.timed_tokens}});
  return costs;
}

OrderedJson run_json(const records::RunRecords& run) {
  OrderedJson rounds = OrderedJson::array(), evaluations = OrderedJson::array();
  for (size_t i = 0; i < run.rounds.size(); ++i)
    rounds.push_back(round_json(run.rounds[i], shows_frame(i, run.rounds.size())));
  for (const auto& evaluation : run.evaluations) evaluations.push_back(record::write(evaluation));
  return {{"label", run.label},
          {"arm", run.arm},
          {"method", run.method},
          {"seed", run.seed},
          {"model", run.model},
          {"config", run.config},
          {"version", run.manifest.value("version", "")},
          {"rounds", rounds},
          {"client_costs", costs_json(run)},
          {"evaluations", evaluations}};
}

OrderedJson differences_json(std::span<const records::RunRecords> runs, std::span<const std::string> free) {
  OrderedJson all = OrderedJson::array();
  for (const auto& difference : comparison::differences(runs, free)) {
    OrderedJson sides = OrderedJson::array();
    for (const auto& side : difference.sides) sides.push_back({{"value", side.value}, {"runs", side.runs}});
    all.push_back({{"what", difference.what}, {"sides", sides}});
  }
  return all;
}

/// Formats JSON for a script element, without "</script>".
std::string script_safe(const OrderedJson& json) {
  const std::string text = json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

void replace(std::string& page, std::string_view mark, std::string_view text) {
  const auto at = page.find(mark);
  EK_CHECK(at != std::string::npos, kInternal, "report page: ", mark, " is missing");
  page.replace(at, mark.size(), text);
}

}  // namespace

std::string report_page(std::span<const records::RunRecords> runs, const std::optional<StudyOfPage>& study) {
  const auto free = study ? study->free : std::vector<std::string>();
  OrderedJson data = {{"runs", OrderedJson::array()}, {"differences", differences_json(runs, free)}};
  for (const auto& run : runs) data["runs"].push_back(run_json(run));
  if (study) data["study"] = {{"name", study->name}, {"reference", study->reference}};
  std::string page(assets::page_html());
  replace(page, "/*STYLE*/", assets::page_css());
  replace(page, "/*SCRIPT*/",
          concat(assets::page_data_js(), assets::page_figure_js(), assets::page_charts_js(), assets::page_costs_js(),
                 assets::page_sections_js()));
  replace(page, "/*DATA*/", script_safe(data));
  return page;
}

void save_report(std::span<const fs::path> folders, const fs::path& file) {
  write_file_atomic(file, report_page(records::load_runs(folders)));
}

}  // namespace evenkeel::report
