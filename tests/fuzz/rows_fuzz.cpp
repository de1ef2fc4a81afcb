// Fuzzes rows of task files. The first letter selects the format: "[" LLM-Adapters' JSON, "{" TeleQuAD's, "F" user
// files of any format in strict mode, "L" user files with invalid rows skipped.
#include "data/row_files.h"
#include "data/tasks.h"
#include "tests/fuzz/fuzz.h"

namespace evenkeel {
namespace {

void read_published(const std::filesystem::path& file) {
  const auto rows = data::load_rows(file);
  data::majority_rate(rows);
  if (!rows.empty()) data::chance_rate(data::find_task("arc_c"), rows);
}

void read_telequad() {
  data::test_rows(data::find_task("telequad"),
                  {.path = fuzz::folder(),
                   .telequad = {.split = data::TelequadSplit::kSpecs, .train_share = 0.5, .impossible = true}});
}

/// Sets options and a label, so that every part of a row is read.
void read_own(const std::filesystem::path& file, bool strict) {
  for (const bool choices : {false, true}) {
    const auto set = data::file_rows({.patterns = {file.string()},
                                      .strict = strict,
                                      .label_field = choices ? "label" : "",
                                      .choices = choices,
                                      .options = {"true", "false"},
                                      .conversations = !choices});
    for (const auto& row : set.rows) data::extract_answer(data::find_task("boolq"), row, row.output, true);
  }
}

}  // namespace
}  // namespace evenkeel

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  if (input.starts_with("F") || input.starts_with("L"))
    return read_own(fuzz::write("own.jsonl", input.substr(1)), input.starts_with("F"));
  if (!input.starts_with("{")) return read_published(fuzz::write("rows.json", input));
  fuzz::write("TeleQuAD-v4-full.json", input);
  read_telequad();
}
