#include "report/page.h"

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "report/assets.h"
#include "report/page_data.h"

namespace evenkeel::report {
namespace {

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

std::string report_page(const comparison::StudyRuns& study) {
  std::string page(assets::page_html());
  replace(page, "/*STYLE*/", assets::page_css());
  replace(page, "/*SCRIPT*/",
          concat(assets::page_data_js(), assets::page_figure_js(), assets::page_charts_js(), assets::page_maps_js(),
                 assets::page_comparison_js(), assets::page_progress_js(), assets::page_clients_js(),
                 assets::page_experts_js(), assets::page_costs_js(), assets::page_sections_js()));
  replace(page, "/*DATA*/", script_safe(page_data(study)));
  return page;
}

std::string report_page(std::span<const records::RunRecords> runs) { return report_page(comparison::arms_of(runs)); }

void save_report(std::span<const fs::path> folders, const fs::path& file) {
  write_file_atomic(file, report_page(records::load_runs(folders)));
}

}  // namespace evenkeel::report
