#include "report/page.h"

#include <cmath>

#include "base/plain/files.h"
#include "report/assets.h"
#include "report/differences.h"

namespace evenkeel {
namespace {

constexpr size_t kMaxFrames = 60;  // rounds the heat map can show: a long run is thinned, first and last stay

/// Four significant digits: a heat map needs no more, and pages stay small.
double rounded(double number) {
  if (number == 0) return number;
  const double unit = std::pow(10.0, 3 - std::floor(std::log10(std::abs(number))));
  return std::round(number * unit) / unit;
}

bool shows_frame(size_t index, size_t count) {
  if (count <= kMaxFrames || index == 0 || index + 1 == count) return true;
  return index * kMaxFrames / count != (index - 1) * kMaxFrames / count;
}

OrderedJson heat_map(const ExpertUse& use) {
  OrderedJson layers = OrderedJson::array();
  for (const auto& u_E : use.utilization) {
    auto& layer = layers.emplace_back(OrderedJson::array());
    for (const double share : u_E) layer.push_back(rounded(share));
  }
  return layers;
}

/// What page.js draws of a round.
OrderedJson round_json(const RoundRecord& round, bool frame) {
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
  if (round.simulated) out["seconds"] = round.simulated->end;
  if (!round.experts) return out;
  out["entropy_mean"] = round.experts->entropy_mean;
  out["gini_mean"] = round.experts->gini_mean;
  if (frame) out["utilization"] = heat_map(*round.experts);
  return out;
}

OrderedJson run_json(const RunRecords& run) {
  OrderedJson rounds = OrderedJson::array(), evaluations = OrderedJson::array();
  for (size_t i = 0; i < run.rounds.size(); ++i)
    rounds.push_back(round_json(run.rounds[i], shows_frame(i, run.rounds.size())));
  for (const auto& evaluation : run.evaluations) evaluations.push_back(record::write(evaluation));
  return {{"label", run.label}, {"method", run.method},      {"seed", run.seed},
          {"model", run.model}, {"config", run.config},      {"version", run.manifest.value("version", "")},
          {"rounds", rounds},   {"evaluations", evaluations}};
}

OrderedJson differences_json(std::span<const RunRecords> runs) {
  OrderedJson all = OrderedJson::array();
  for (const auto& difference : differences(runs)) {
    OrderedJson sides = OrderedJson::array();
    for (const auto& side : difference.sides) sides.push_back({{"value", side.value}, {"runs", side.runs}});
    all.push_back({{"what", difference.what}, {"sides", sides}});
  }
  return all;
}

/// JSON inside a script element: no "</script>" can stand in it.
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

std::string report_page(std::span<const RunRecords> runs) {
  OrderedJson data = {{"runs", OrderedJson::array()}, {"differences", differences_json(runs)}};
  for (const auto& run : runs) data["runs"].push_back(run_json(run));
  std::string page(assets::page_html());
  replace(page, "/*STYLE*/", assets::page_css());
  replace(page, "/*DATA*/", script_safe(data));
  replace(page, "/*CHARTS*/", assets::chart_js());
  replace(page, "/*SCRIPT*/", assets::page_js());
  return page;
}

void save_report(std::span<const fs::path> folders, const fs::path& file) {
  write_file_atomic(file, report_page(load_runs(folders)));
}

}  // namespace evenkeel
