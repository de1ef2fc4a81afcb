// Fuzzes rounds.jsonl and evaluations.jsonl as read by the report, with tables and page. The input has both, separated
// by a NUL.
#include <array>

#include "records/run_records.h"
#include "report/page.h"
#include "report/tables.h"
#include "tests/fuzz/fuzz.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  fuzz::write("config.toml", "seed = 3\n[model]\npath = \"small\"\n[method]\nname = \"fedit\"\n");
  fuzz::write("manifest.json",
              R"({"program": "evenkeel", "version": "0.1.0", "files": [], "machine": {}, "libraries": {}})");
  const auto end = input.find('\0');
  fuzz::write("rounds.jsonl", input.substr(0, end));
  fuzz::write("evaluations.jsonl", end == std::string_view::npos ? std::string_view() : input.substr(end + 1));
  const auto runs = records::load_runs(std::array{fuzz::folder()});
  report::default_tables(runs);
  report::report_page(runs);
}
