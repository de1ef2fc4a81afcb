// Rows of the task files: LLM-Adapters' JSON, and TeleQuAD's.
#include "data/tasks.h"
#include "tests/fuzz/fuzz.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  const bool telequad = input.starts_with("{");
  if (!telequad) {
    const auto rows = load_rows(write("rows.json", input));
    majority_rate(rows);
    if (!rows.empty()) chance_rate(find_task("arc_c"), rows);
    return;
  }
  write("TeleQuAD-v4-full.json", input);
  test_rows(find_task("telequad"),
            {.path = folder(), .telequad = {.split = TelequadSplit::kSpecs, .train_share = 0.5, .impossible = true}});
}
