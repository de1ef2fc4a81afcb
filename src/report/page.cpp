#include "report/page.h"

#include <cmath>

#include "base/files.h"
#include "report/assets.h"
#include "report/differences.h"

namespace evenkeel {
namespace {

constexpr size_t kMaxFrames = 60;  // rounds the heat map can show: a long run is thinned, first and last stay

/// Four significant digits: a heat map needs no more, and pages stay small.
OrderedJson rounded(const Json& value) {
  if (value.is_array()) {
    OrderedJson list = OrderedJson::array();
    for (const auto& item : value) list.push_back(rounded(item));
    return list;
  }
  if (!value.is_number_float() || value.get<double>() == 0) return value;
  const double number = value.get<double>();
  const double unit = std::pow(10.0, 3 - std::floor(std::log10(std::abs(number))));
  return std::round(number * unit) / unit;
}

bool shows_frame(size_t index, size_t count) {
  if (count <= kMaxFrames || index == 0 || index + 1 == count) return true;
  return index * kMaxFrames / count != (index - 1) * kMaxFrames / count;
}

OrderedJson round_json(const Json& record, bool frame) {
  OrderedJson out;
  for (const auto* key :
       {"round", "loss", "first_loss", "last_loss", "tokens", "bytes_up", "bytes_down", "bytes_up_parts",
        "bytes_down_parts", "flops", "experts_per_token", "entropy_mean", "gini_mean", "metrics"})
    if (record.contains(key)) out[key] = record[key];
  if (frame && record.contains("utilization")) out["utilization"] = rounded(record["utilization"]);
  return out;
}

OrderedJson evaluation_json(const Evaluation& evaluation) {
  OrderedJson out = {{"round", evaluation.round}};
  out.update(to_json(evaluation.score));
  return out;
}

OrderedJson run_json(const RunRecords& run) {
  OrderedJson rounds = OrderedJson::array(), evaluations = OrderedJson::array();
  for (size_t i = 0; i < run.rounds.size(); ++i)
    rounds.push_back(round_json(run.rounds[i], shows_frame(i, run.rounds.size())));
  for (const auto& evaluation : run.evaluations) evaluations.push_back(evaluation_json(evaluation));
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
