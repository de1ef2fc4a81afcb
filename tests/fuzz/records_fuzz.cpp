// Fuzzes rounds.jsonl and evaluations.jsonl as read by the report, with tables and page. The input has both, separated
// by a NUL. Each line gets a checksum, because reports do not read lines with a wrong one.
#include <array>
#include <optional>

#include "base/plain/sealed.h"
#include "records/run_records.h"
#include "records/testing.h"
#include "report/page.h"
#include "report/tables.h"
#include "tests/fuzz/fuzz.h"

namespace evenkeel {
namespace {

/// Seals the lines that are JSON objects. Others stay as they are.
std::string sealed_lines(std::string_view text) {
  std::string all;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto json = OrderedJson::parse(line, nullptr, false);
    all += concat(json.is_object() ? sealed(json) : std::string(line), '\n');
  }
  return all;
}

}  // namespace

void fuzz::fuzz_one(std::string_view input) {
  testing::write_run(fuzz::folder(), "seed = 3\n[model]\npath = \"small\"\n[method]\nname = \"fedit\"\n");
  const auto end = input.find('\0');
  fuzz::write("rounds.jsonl", sealed_lines(input.substr(0, end)));
  fuzz::write("evaluations.jsonl",
              sealed_lines(end == std::string_view::npos ? std::string_view() : input.substr(end + 1)));
  const auto runs = records::load_runs(std::array{fuzz::folder()});
  report::text_of(report::default_tables(runs));
  report::report_page(runs);
}

}  // namespace evenkeel
