// Fuzzes the configuration of a run: a TOML file, with its last line as a --set.
#include "fed/config/experiment_config.h"
#include "tests/fuzz/fuzz.h"

namespace {

evenkeel::fed::ExperimentConfig read(std::string_view text, std::string_view setting) {
  auto table = evenkeel::config::Table::parse(text, "run.toml");
  if (!setting.empty()) table.set(setting);
  return evenkeel::fed::ExperimentConfig::read(table);
}

}  // namespace

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  const auto end = input.rfind('\n');
  const auto setting = end == std::string_view::npos ? std::string_view() : input.substr(end + 1);
  const auto text = read(input.substr(0, end), setting).text();
  if (read(text, {}).text() != text) fuzz::finding("a config that does not read back equal", text);
}
